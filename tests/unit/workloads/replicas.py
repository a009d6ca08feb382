"""Train a small model with every scheme on a few processes: python -m tests.unit.workloads.replicas RANK WORLD_SIZE PORT SCHEME...

Prints a JSON line a scheme: a hash of the model after some steps, what the scheme counted, and what the loopback interface did.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
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


def train(scheme: str, rank: int) -> dict[str, Any]:
    """Train some steps and tell what came of it."""
    model = DistributedDataParallel(build(), bucket_cap_mb=0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attachment = attach(model, scheme, seed=3)
    generator = torch.Generator().manual_seed(rank)
    ratios, losses = [], []

    def step() -> None:
        inputs = torch.randn(16, 64, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), inputs[:, :10].argmax(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ratios.append(stats(model).ratio)

    for _ in range(2):  # DDP rebuilds its buckets
        step()
    before = replace(stats(model))
    framing_bytes = payload_bytes_during(lambda: None)
    wire_bytes = payload_bytes_during(lambda: [step() for _ in range(STEPS)])
    after = replace(stats(model))
    attachment.close()
    return {
        "scheme": scheme,
        "digest": digest(model),
        "ratios": ratios,
        "losses": losses,
        "counted_bytes": after.bytes_sent - before.bytes_sent,
        "messages": after.messages - before.messages,
        "dense_bytes": stats(model).dense_bytes,
        "wire_bytes": wire_bytes - framing_bytes,
    }


def main() -> None:
    """Join the others and go through the schemes."""
    rank, world_size, port, *schemes = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world_size), timeout=timedelta(seconds=60)
    )
    for scheme in schemes:
        os.write(1, json.dumps(train(scheme, int(rank))).encode() + b"\n")  # in one piece: the ranks share a pipe
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
