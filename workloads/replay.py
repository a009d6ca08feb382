"""Replay a named model's gradients: real payloads through DDP's real buckets and hooks, compute slept.

A third of the compute time passes in forward, two thirds in backward, in equal shares a parameter tensor, so buckets
become ready during backward as in training. Sleeping keeps to a schedule: copying gradients counts against it, encoding
does not (on a real device, too, it comes on top of computing).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from workloads.clock import Clock
from workloads.job import Job
from workloads.models.sizes import layer_sizes
from workloads.pace import MIN_SLEEP_S, Schedule
from workloads.records import Stream
from workloads.session import Session, wrap

SPARE_ELEMENTS = 1 << 20  # how far layers' gradients may be shifted against each other in the shared noise
STRIDE = 99_991


class _Layer(torch.autograd.Function):
    """Pass a scalar through; in backward wait for the layer's share and give its parameter a fixed gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, parameter: Tensor, gradient: Tensor, wait: Callable[[], None]) -> Tensor:
        """Remember what backward needs."""
        ctx.gradient, ctx.wait = gradient, wait
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Wait, then hand out the gradient."""
        ctx.wait()
        return grads[0], ctx.gradient, None, None


class Replayed(nn.Module):
    """Parameters of the model's sizes, never read; every layer's gradient is a window on one shared noise."""

    def __init__(self, sizes: list[int], compute_s: float, seed: int) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.empty(n)) for n in sizes)  # untouched pages take no memory
        self.start = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.compute_s = compute_s
        self.schedule = Schedule(Clock())
        pool = max(sizes) + min(SPARE_ELEMENTS, sum(sizes))
        noise = torch.empty(pool).normal_(generator=torch.Generator().manual_seed(seed))
        noise.mul_(noise.square()).mul_(1e-3)  # cubed normals: many tiny, few large, as gradients are
        offsets = [(i * STRIDE) % (pool - n + 1) for i, n in enumerate(sizes)]
        self._gradients = [noise[offset : offset + n] for offset, n in zip(offsets, sizes, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        """Sleep the forward third and chain the layers."""
        self.schedule.begin()
        self.zero_grad(set_to_none=False)  # in place and within the slept time: fresh memory every step would page-fault
        self.schedule.wait_until(self.compute_s / 3, least_s=0.0)
        count = len(self.layers)
        for i, (parameter, gradient) in enumerate(zip(self.layers, self._gradients, strict=True)):
            x = _Layer.apply(x, parameter, gradient, self._waiter(count - i, count))
        return x

    def _waiter(self, done: int, count: int) -> Callable[[], None]:
        offset_s = self.compute_s / 3 * (1 + 2 * done / count)
        least_s = 0.0 if done == count else MIN_SLEEP_S
        return lambda: self.schedule.wait_until(offset_s, least_s)


def replay(job: Job, stream: Stream) -> None:
    """Replay as the job says and write the worker's result."""
    work = job.workload
    model = Replayed(layer_sizes(work["model"]), work["compute_s"], seed=job.seed * 1000 + job.rank)
    session = Session(job, stream, wrap(model))
    model.schedule = Schedule(session.clock, lambda: session.attachment.encode_total_s)

    def run_step(step: int) -> None:
        model.compute_s = work["compute_s"] * session.slowdown
        session.model(torch.ones((), requires_grad=True)).backward()
        session.timer.backward_done()

    session.warm_up(run_step, save=lambda: None, restore=lambda state: None)
    session.measure(run_step)
    hyperparameters = {"model": work["model"], "compute_s": work["compute_s"], "batch_size": work["batch_size"]}
    stream.result({**session.result(_digest(model), hyperparameters), "parameter_digest_of": "mean gradient of the last step"})


def _digest(model: Replayed) -> str:
    """Hash the last mean gradient: no parameter is ever updated, but the means must agree."""
    state = hashlib.sha256()
    for parameter in model.layers:
        if parameter.grad is not None:
            state.update(memoryview(parameter.grad.contiguous().numpy()).cast("B"))
    return state.hexdigest()
