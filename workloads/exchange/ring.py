"""An all-gather of payloads of any lengths around a ring: every payload travels with its own length, nothing is padded."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.exchange.messages import Endpoint
from workloads.exchange.plan import MESSAGE_FRAMING_BYTES, Plan


class Ring:
    """Pass payloads to the right-hand neighbour until everybody has all of them."""

    def __init__(self, endpoint: Endpoint, message_tag: int, payload: Tensor, lengths: list[int]) -> None:
        """Post all receives and send this worker's payload; `lengths` are those of all ranks."""
        self._endpoint, self._tag = endpoint, message_tag
        world_size, rank = endpoint.world_size, endpoint.rank
        self._right, left = (rank + 1) % world_size, (rank - 1) % world_size
        self._order = [(rank - hop) % world_size for hop in range(world_size)]  # whose payload is sent in which hop; the last stays
        self.payloads = [payload if r == rank else torch.empty(lengths[r], dtype=torch.uint8) for r in range(world_size)]
        self._receives = [endpoint.receive(self.payloads[owner], left, message_tag) for owner in self._order[1:]]
        self._sends: list[dist.Work] = []
        if world_size > 1:
            self._forward(0)

    def wait(self) -> list[Tensor]:
        """Forward what arrives until all is here; return the payloads by rank."""
        for hop, receive in enumerate(self._receives, start=1):
            receive.wait()
            if hop < len(self._receives):
                self._forward(hop)
        for send in self._sends:
            send.wait()
        return self.payloads

    def plan(self) -> Plan:
        """Return what it costs on the wire."""
        lengths = [payload.numel() for payload in self.payloads]
        return plan_ring(lengths, self._endpoint.rank)

    def _forward(self, hop: int) -> None:
        self._sends.append(self._endpoint.send(self.payloads[self._order[hop]], self._right, self._tag))


def plan_ring(lengths: list[int], rank: int) -> Plan:
    """Cost for one rank of passing payloads of these lengths around."""
    hops, total = len(lengths) - 1, sum(lengths)
    framing = hops * MESSAGE_FRAMING_BYTES
    sent, received = total - lengths[(rank + 1) % len(lengths)] if hops else 0, total - lengths[rank] if hops else 0
    return Plan(sent + framing, received + framing, 0.5 * (hops + 1) if hops else 0.0, 2 * hops)
