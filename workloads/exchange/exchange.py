"""The exchange contract: one object a bucket on its way, from the gradient of one worker to the mean of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from workloads.clock import Clock
from workloads.exchange.plan import Plan


@dataclass(frozen=True)
class Bucket:
    """Gradients that travel together; the mean is written back to `flat`."""

    index: int  # the same on all ranks
    layout: Hashable  # identifies the parameters; a change means that memories of the bucket are void
    sizes: tuple[int, ...]  # elements of each tensor in `flat`, in order
    flat: Tensor
    ddp: dist.GradBucket | None = None  # as DDP handed it out, for PyTorch's own hooks


class Transfer(ABC):
    """One bucket on its way. `encode` and `start` run on the thread of backward, `wait` and `decode` on a thread of their own."""

    ratio: float = 1.0  # fraction of the elements that travel

    @abstractmethod
    def encode(self) -> None:
        """Make what is to be sent (timed as encoding)."""

    @abstractmethod
    def start(self) -> None:
        """Begin to send; must not block."""

    @abstractmethod
    def wait(self) -> None:
        """Block until everything has arrived; raise if a peer is gone."""

    @abstractmethod
    def decode(self) -> None:
        """Write the mean gradient to the bucket, bit for bit the same on every rank (timed as decoding)."""

    @abstractmethod
    def plan(self) -> Plan:
        """Return what this cost on the wire; called after `wait`."""


class Exchange(ABC):
    """A way to average buckets among the workers of a process group."""

    pattern = "ring"  # who sends to whom, for predictions: "ring" or "server" (rank 0 is the server)
    group: dist.ProcessGroup | None = None  # None: the default group
    clock = Clock()  # for those that compute in `wait`

    def bind(self, group: dist.ProcessGroup | None, seed: int) -> None:
        """Take part in a group of workers (over gloo); `seed` is this worker's own."""
        self.group = group

    @property
    def world_size(self) -> int:
        """How many workers take part."""
        return dist.get_world_size(self.group)

    @property
    def rank(self) -> int:
        """This worker's place in the group."""
        return dist.get_rank(self.group)

    @abstractmethod
    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare the exchange of one bucket."""

    def reset(self) -> None:  # noqa: B027 - an exchange without memory has nothing to forget
        """Forget what is carried from step to step."""
