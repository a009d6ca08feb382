"""Sum the gradients themselves, in full or half precision; the ring gives every rank the same bits."""

from __future__ import annotations

import torch
import torch.distributed as dist

from workloads.compression.memory import Memory, NoMemory
from workloads.exchange.exchange import Bucket, Exchange, Transfer
from workloads.exchange.plan import Plan, plan_allreduce


class AllReduce(Exchange):
    """Average by all-reduce after a cast to `dtype` (None: as it is), sending what a memory still held along."""

    def __init__(self, dtype: torch.dtype | None = None, memory: Memory | None = None) -> None:
        self.dtype, self.memory = dtype, memory or NoMemory()

    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare the sum of one bucket."""
        return _Sum(self, bucket)

    def reset(self) -> None:
        """Empty the memory."""
        self.memory.reset()


class _Sum(Transfer):
    """One bucket being summed."""

    def __init__(self, exchange: AllReduce, bucket: Bucket) -> None:
        self._exchange, self._bucket = exchange, bucket
        self._packed = bucket.flat
        self._work: dist.Work | None = None

    def encode(self) -> None:
        """Divide by the number of workers, then cast: the sum cannot overflow half precision where the mean does not."""
        bucket, memory, world_size = self._bucket, self._exchange.memory, self._exchange.world_size
        compensated = memory.compensate(bucket.index, bucket.layout, bucket.flat)
        dtype = self._exchange.dtype or bucket.flat.dtype
        if dtype == bucket.flat.dtype:
            self._packed = torch.div(compensated, world_size, out=bucket.flat)
        else:
            self._packed = torch.mul(compensated, 1.0 / world_size, out=torch.empty_like(bucket.flat, dtype=dtype))
        memory.clear(bucket.index)

    def start(self) -> None:
        self._work = dist.all_reduce(self._packed, group=self._exchange.group, async_op=True)

    def wait(self) -> None:
        assert self._work is not None
        self._work.wait()

    def decode(self) -> None:
        """Cast back."""
        if self._packed is not self._bucket.flat:
            self._bucket.flat.copy_(self._packed)

    def plan(self) -> Plan:
        return plan_allreduce(self._packed.numel() * self._packed.element_size(), self._exchange.world_size)
