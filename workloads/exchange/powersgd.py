"""PowerSGD (Vogels et al. 2019) by PyTorch's own communication hook, with its bytes counted.

The hook all-reduces three things a bucket: the tensors it leaves alone (vectors, and matrices a factorisation would not
shrink), the left factors, and then the right factors. The same test that it uses says which tensors those are.

It begins each all-reduce when the one before is done, so with several buckets under way the order could differ between ranks,
which over gloo mixes them up. Here a bucket begins when the one before is done.
"""

from __future__ import annotations

import threading

import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

from workloads.exchange.exchange import Bucket, Exchange, Transfer
from workloads.exchange.plan import NOTHING, Plan, plan_allreduce

_FIRST_COMPRESSED_STEP = 2  # the hook's own least: DDP rebuilds its buckets after the first step
_MIN_COMPRESSION_RATE = 2  # the hook's default


class PowerSgd(Exchange):
    """Average low-rank factors of the gradient's matrices, with PyTorch's error feedback and warm start."""

    def __init__(self, rank: int) -> None:
        self._matrix_rank = rank
        self.state: powersgd.PowerSGDState
        self._last = threading.Event()
        self._last.set()

    def bind(self, group: dist.ProcessGroup | None, seed: int) -> None:
        """Make the hook's state."""
        super().bind(group, seed)
        self.reset()

    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare one bucket's factorisation."""
        return _Factorisation(self, bucket)

    def reset(self) -> None:
        """Forget errors and factors."""
        self.state = powersgd.PowerSGDState(
            self.group,
            matrix_approximation_rank=self._matrix_rank,
            start_powerSGD_iter=_FIRST_COMPRESSED_STEP,
            min_compression_rate=_MIN_COMPRESSION_RATE,
        )

    def queue_up(self) -> tuple[threading.Event, threading.Event]:
        """Return the event that the bucket before is done, and the one to set when this one is."""
        before, self._last = self._last, threading.Event()
        return before, self._last

    def elements(self, gradients: list[Tensor]) -> tuple[int, int, int]:
        """Count what the hook all-reduces: elements left alone, of left factors, of right factors."""
        alone = left = right = 0
        for gradient in gradients:
            rows, columns = gradient.view(gradient.shape[0], -1).shape
            compressed, _, _ = powersgd._should_compress(rows, columns, self._matrix_rank, _MIN_COMPRESSION_RATE)
            if compressed:
                rank = min(rows, columns, self._matrix_rank)
                left, right = left + rows * rank, right + columns * rank
            else:
                alone += gradient.numel()
        return alone, left, right


class _Factorisation(Transfer):
    """One bucket in PyTorch's hook; its factorising and its sending cannot be told apart and count as exchange."""

    def __init__(self, exchange: PowerSgd, bucket: Bucket) -> None:
        assert bucket.ddp is not None
        self._exchange, self._bucket, self._ddp = exchange, bucket, bucket.ddp
        self._before, self._done = exchange.queue_up()
        self._reduced = (0, 0, 0)
        self._mean = bucket.flat

    def encode(self) -> None:
        """Leave it to the hook."""

    def start(self) -> None:
        """Leave it to the hook."""

    def wait(self) -> None:
        self._before.wait()
        try:
            state = self._exchange.state
            elements = self._bucket.flat.numel()
            dense = state.iter < _FIRST_COMPRESSED_STEP
            self._reduced = (elements, 0, 0) if dense else self._exchange.elements(self._ddp.gradients())
            self.ratio = sum(self._reduced) / max(1, elements)
            self._mean = powersgd.powerSGD_hook(state, self._ddp).wait()
            if not bool(self._mean.isfinite().all()):  # all ranks see it alike; the hook would keep it for good
                for memory in (state.error_dict, state.p_memory_dict, state.q_memory_dict):
                    memory.pop(self._bucket.index, None)
        finally:
            self._done.set()

    def decode(self) -> None:
        if self._mean.data_ptr() != self._bucket.flat.data_ptr():
            self._bucket.flat.copy_(self._mean)

    def plan(self) -> Plan:
        size = self._bucket.flat.element_size()
        cost = NOTHING
        for elements in self._reduced:
            if elements:
                cost += plan_allreduce(elements * size, self._exchange.world_size)
        return cost
