"""The exchange contract: pack on the autograd thread, move asynchronously, unpack the mean when all has arrived."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from workloads.exchange.plan import Plan


class Exchange(ABC):
    """Move one bucket's gradient among the workers of a process group."""

    group: dist.ProcessGroup | None = None  # None: the default group

    @property
    def world_size(self) -> int:
        """How many workers take part."""
        return dist.get_world_size(self.group)

    @abstractmethod
    def pack(self, slot: int, layout: Hashable, flat: Tensor, ratio: float) -> Tensor:
        """Return what to send for a bucket (timed as encoding)."""

    @abstractmethod
    def start(self, packed: Tensor) -> tuple[Future[Tensor], Tensor]:
        """Begin the collective; return its future and the tensor that then holds what arrived."""

    @abstractmethod
    def unpack(self, received: Tensor, out: Tensor) -> None:
        """Write the mean gradient to `out`, bit for bit the same on every rank (timed as decoding)."""

    @abstractmethod
    def plan(self, packed: Tensor) -> Plan:
        """Return what moving `packed` costs on the wire."""

    def reset(self) -> None:  # noqa: B027 - an exchange without memory has nothing to forget
        """Forget what is carried from step to step."""
