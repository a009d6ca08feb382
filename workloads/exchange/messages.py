"""Messages between two workers: gloo's sends and receives, with tags of our own.

Gloo sends a message when the receiver has said that it is ready for it. So receives are posted as early as their length is
known, which saves that handshake's half of a round trip. Messages of one tag between two workers arrive in the order sent.
"""

from __future__ import annotations

import struct

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from workloads.exchange.plan import MESSAGE_FRAMING_BYTES, Plan

AGREEMENT, LENGTH, PAYLOAD = 0, 1, 2  # kinds of message, each with a tag of its own in every bucket
_KINDS = 4
_FIRST_TAG = 1 << 24  # far above what scripts use for messages of their own
_LENGTH = struct.Struct("<q")


def tag(kind: int, bucket: int = 0) -> int:
    """Return the tag of a kind of message of a bucket."""
    return _FIRST_TAG + _KINDS * bucket + kind


class Endpoint:
    """This worker's end of a group."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.world_size, self.rank = dist.get_world_size(group), dist.get_rank(group)

    @property
    def peers(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in range(self.world_size) if rank != self.rank]

    def send(self, message: Tensor, peer: int, message_tag: int) -> dist.Work:
        """Begin to send; the tensor must stay as it is until the work is done."""
        work = dist.isend(message, group=self.group, group_dst=peer, tag=message_tag)
        assert work is not None
        return work

    def receive(self, message: Tensor, peer: int, message_tag: int) -> dist.Work:
        """Begin to receive a message of exactly the tensor's size."""
        work = dist.irecv(message, group=self.group, group_src=peer, tag=message_tag)
        assert work is not None
        return work


class Round:
    """A short message of equal length from every worker directly to every other: it costs one one-way delay."""

    def __init__(self, endpoint: Endpoint, message_tag: int, size_bytes: int) -> None:
        """Post the receives; create it some time before `send` and nothing waits for the handshake."""
        self._endpoint, self._tag = endpoint, message_tag
        self._messages = torch.zeros(endpoint.world_size, size_bytes, dtype=torch.uint8)
        self._works = [endpoint.receive(self._messages[peer], peer, message_tag) for peer in endpoint.peers]

    def send(self, message: bytes) -> None:
        """Send this worker's message to all others."""
        mine = self._messages[self._endpoint.rank]
        mine.numpy()[:] = np.frombuffer(message, np.uint8)
        self._works += [self._endpoint.send(mine, peer, self._tag) for peer in self._endpoint.peers]

    def wait(self) -> list[bytes]:
        """Block until all messages are there; return them by rank."""
        for work in self._works:
            work.wait()
        return [row.numpy().tobytes() for row in self._messages]

    def plan(self) -> Plan:
        """Return what the round costs on the wire."""
        peers = self._endpoint.world_size - 1
        volume = peers * (self._messages.shape[1] + MESSAGE_FRAMING_BYTES)
        return Plan(volume, volume, 0.5, 2 * peers)


def pack_length(length_bytes: int) -> bytes:
    """Write a payload's length."""
    return _LENGTH.pack(length_bytes)


def read_length(message: bytes, limit_bytes: int) -> int:
    """Read a payload's length; a peer that claims an absurd one is not of our kind."""
    length: int = _LENGTH.unpack(message)[0]
    if not 0 <= length <= limit_bytes:
        raise ValueError(f"a peer announces a payload of {length} bytes where at most {limit_bytes} make sense")
    return length


LENGTH_BYTES = _LENGTH.size
