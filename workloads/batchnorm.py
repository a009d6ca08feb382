"""Batch-norm statistics for evaluations, measured afresh instead of averaged over training.

Running averages lag behind weights that still move fast: early in training they cost an evaluation up to 40 points of accuracy,
at random. So before each evaluation every rank sends a batch of fixed training images through the model it has now, and
the ranks average what they measured; all end up with the same statistics. Training itself never reads them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from workloads.clock import Clock


def refresh_statistics(model: Module, images: Tensor, clock: Clock) -> None:
    """Replace the statistics by those of `images`, averaged over all ranks (each brings its own images)."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average
    model.train()
    with torch.no_grad(), clock.work():
        model(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    flat = torch.cat([buffer.reshape(-1) for buffer in statistics])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for buffer, piece in zip(statistics, flat.split([b.numel() for b in statistics]), strict=True):
        buffer.copy_(piece.view_as(buffer))
