"""Train a small model with every scheme on a few processes.

Every one prints a JSON line a scheme: a hash of the model after some steps, what the scheme counted, and what the loopback interface did.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.hooks import attach, stats

STEPS = 10
FRAME_HEADERS_BYTES = 66  # Ethernet, IP, TCP and its timestamps


def build() -> nn.Module:
    """Make a model of several buckets, with matrices worth factorising and vectors that are not."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.LayerNorm(1024), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))


def digest(model: nn.Module) -> str:
    """Hash the parameters."""
    state = hashlib.sha256()
    for tensor in model.state_dict().values():
        state.update(tensor.contiguous().numpy().tobytes())
    return state.hexdigest()


def loopback() -> tuple[int, int]:
    """Return bytes and frames that the loopback interface of this namespace has sent."""
    with open("/proc/self/net/dev") as table:
        fields = next(line for line in table if line.strip().startswith("lo:")).split(":")[1].split()
    return int(fields[8]), int(fields[9])


def payload_bytes_during(action: Callable[[], object]) -> int:
    """Return what all ranks together sent while each did something, frames' headers and acknowledgements taken off."""
    dist.barrier()
    bytes_before, frames_before = loopback()
    dist.barrier()
    action()
    dist.barrier()
    bytes_after, frames_after = loopback()
    dist.barrier()
    return bytes_after - bytes_before - FRAME_HEADERS_BYTES * (frames_after - frames_before)


class Training:
    """A model with a scheme attached, on one rank."""

    def __init__(self, scheme: str, rank: int) -> None:
        self.model = DistributedDataParallel(build(), bucket_cap_mb=0.5)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.attachment = attach(self.model, scheme, seed=3)
        self.generator = torch.Generator().manual_seed(rank)
        self.ratios: list[float] = []
        self.losses: list[float] = []

    def step(self) -> None:
        """Train a step."""
        inputs = torch.randn(16, 64, generator=self.generator)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), inputs[:, :10].argmax(1))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.ratios.append(stats(self.model).ratio)


def train(scheme: str, rank: int) -> dict[str, Any]:
    """Train some steps and tell what came of it."""
    training = Training(scheme, rank)
    model = training.model
    for _ in range(2):  # DDP rebuilds its buckets
        training.step()
    before = replace(stats(model))
    framing_bytes = payload_bytes_during(lambda: None)
    wire_bytes = payload_bytes_during(lambda: [training.step() for _ in range(STEPS)])
    after = replace(stats(model))
    training.attachment.close()
    return {
        "scheme": scheme,
        "digest": digest(model),
        "ratios": training.ratios,
        "losses": training.losses,
        "counted_bytes": after.bytes_sent - before.bytes_sent,
        "messages": after.messages - before.messages,
        "dense_bytes": stats(model).dense_bytes,
        "wire_bytes": wire_bytes - framing_bytes,
    }


def join(rank: int, world_size: int, port: int) -> None:
    """Join the others."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size, timeout=timedelta(seconds=60))


def train_all(rank: int, world_size: int, port: int, schemes: list[str]) -> None:
    """Join the others and go through the schemes."""
    join(rank, world_size, port)
    for scheme in schemes:
        os.write(1, json.dumps(train(scheme, rank)).encode() + b"\n")
    dist.barrier()
    dist.destroy_process_group()


def train_on(rank: int, world_size: int, port: int, scheme: str) -> None:
    """Join the others and train until something ends it; print a line a step."""
    join(rank, world_size, port)
    training = Training(scheme, rank)
    while True:
        training.step()
        os.write(1, b"step\n")
