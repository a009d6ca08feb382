"""Sum the gradients themselves, in full or half precision; the ring gives every rank the same bits."""

from __future__ import annotations

from collections.abc import Hashable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from workloads.exchange.exchange import Exchange
from workloads.exchange.plan import Plan, plan_allreduce


class AllReduce(Exchange):
    """Average by all-reduce after a cast to `dtype` (None: as it is)."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype

    def pack(self, slot: int, layout: Hashable, flat: Tensor, ratio: float) -> Tensor:
        """Divide by the number of workers, then cast: the sum cannot overflow half precision where the mean does not."""
        if self.dtype in (None, flat.dtype):
            return flat.div_(self.world_size)
        packed = torch.empty_like(flat, dtype=self.dtype)
        return torch.mul(flat, 1.0 / self.world_size, out=packed)

    def start(self, packed: Tensor) -> tuple[Future[Tensor], Tensor]:
        """Begin the all-reduce in place."""
        work = dist.all_reduce(packed, group=self.group, async_op=True)
        assert work is not None
        return work.get_future(), packed

    def unpack(self, received: Tensor, out: Tensor) -> None:
        """Cast back."""
        if received.data_ptr() != out.data_ptr():
            out.copy_(received)

    def plan(self, packed: Tensor) -> Plan:
        """Return the ring's cost."""
        return plan_allreduce(packed.numel() * packed.element_size(), self.world_size)
