"""Train a small model and let something go wrong."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.unit.workloads.replicas import digest
from workloads.attachment import Attachment
from workloads.exchange.exchange import Bucket, Exchange, Transfer
from workloads.hooks import attach

STEPS = 4
UNLUCKY_RANK, UNLUCKY_BUCKET = 1, 2


def build(dtype: torch.dtype = torch.float32, **options: Any) -> DistributedDataParallel:
    """Make a model of several buckets."""
    torch.manual_seed(1)
    layers = [nn.Linear(64, 64) for _ in range(6)]
    return DistributedDataParallel(nn.Sequential(*layers).to(dtype), bucket_cap_mb=0.02, **options)


def spoil_encoding(exchange: Exchange) -> None:
    """Let one bucket's encoding fail from now on."""
    prepare = exchange.transfer

    def transfer(bucket: Bucket, ratio: float) -> Transfer:
        made = prepare(bucket, ratio)
        if bucket.index == UNLUCKY_BUCKET:

            def encode() -> None:
                raise MemoryError("no room to encode")

            made.encode = encode  # type: ignore[method-assign]
        return made

    exchange.transfer = transfer  # type: ignore[method-assign]


def attach_all(models: list[DistributedDataParallel], scheme: str) -> list[Attachment]:
    """Attach the scheme to all models, or say why it was refused: the error is gone on return, and with it what it refers to."""
    try:
        return [attach(model, scheme) for model in models]
    except ValueError as error:
        os.write(2, f"{error}\n".encode())
        return []


def loss(output: Tensor) -> Tensor:
    """Return something to differentiate."""
    return output.float().square().mean()


def train(rank: int, world_size: int, port: int, mishap: str, scheme: str) -> None:
    """Join the others and train."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size, timeout=timedelta(seconds=40))
    if mishap == "mismatch" and rank == UNLUCKY_RANK:
        scheme = "topk-0.5"
    models = [build(torch.float16 if mishap == "half" else torch.float32)]
    if mishap == "two models":
        models.append(build())
    attachments = attach_all(models, scheme)
    if not attachments:
        # without this gloo's threads may hold tensors while the interpreter ends, which aborts it now and then (PyTorch's issue 190489)
        dist.destroy_process_group()
        sys.exit(1)
    generator = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        if step == STEPS - 1 and rank == UNLUCKY_RANK and mishap == "encode":
            spoil_encoding(attachments[0].parts.exchange)
        inputs = torch.randn(4, 64, generator=generator)
        if mishap == "half":
            model = models[0]
            (model(inputs.half()).sum() * 8000).backward()
            os.write(1, f"{max(float(p.grad.abs().max()) for p in model.parameters())}\n".encode())
            model.zero_grad()
        else:
            sum(loss(model(inputs)) for model in models).backward()
    os.write(1, (" ".join(digest(model) for model in models) + "\n").encode())
    dist.barrier()
    dist.destroy_process_group()
