"""Give every worker's payload to all the others; each decodes all of them in rank order.

Sparse payloads cannot be summed on the way, so the volume grows with the number of workers: N-1 payloads in and out.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory
from workloads.exchange.exchange import Exchange
from workloads.exchange.plan import Plan, plan_allgather


class AllGather(Exchange):
    """Average payloads of equal length, made by a codec and compensated by a memory."""

    def __init__(self, codec: Codec, memory: Memory) -> None:
        if not codec.fixed_size:
            raise ValueError(f"{type(codec).__name__} makes payloads of varying length; this all-gather needs equal ones")
        self.codec, self.memory = codec, memory

    def pack(self, slot: int, layout: Hashable, flat: Tensor, ratio: float) -> Tensor:
        """Compensate, encode, and keep the rest."""
        compensated = self.memory.compensate(slot, layout, flat)
        payload = self.codec.encode(compensated, ratio)
        self.memory.keep(slot, compensated, payload, self.codec)
        return payload

    def start(self, packed: Tensor) -> tuple[Future[Tensor], Tensor]:
        """Begin the all-gather."""
        received = torch.empty((self.world_size, packed.numel()), dtype=torch.uint8, device=packed.device)
        work = dist.all_gather(list(received.unbind(0)), packed, group=self.group, async_op=True)
        assert work is not None
        return work.get_future(), received

    def unpack(self, received: Tensor, out: Tensor) -> None:
        """Sum the payloads in rank order, then divide: the same operations in the same order on every rank."""
        out.zero_()
        for payload in received:
            self.codec.add_decoded(payload, out)
        out.div_(received.shape[0])

    def plan(self, packed: Tensor) -> Plan:
        """Return the ring's cost."""
        return plan_allgather(packed.numel(), self.world_size)

    def reset(self) -> None:
        """Empty the memory."""
        self.memory.reset()
