"""Read queues' counters by netlink: bytes and packets sent, backlog, drops, overlimits.

Many requests in one datagram, parsed with `struct`: some 5 us a queue, where forking `tc -s -j` takes 2 ms.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

MOST_AT_ONCE = 16  # requests in one datagram: their answers must fit the socket's buffer, a page or two each

_RTM_NEWTCLASS = 40
_RTM_GETTCLASS = 42
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_NLM_F_ECHO = 8  # without it the kernel tells only its listeners
_NLM_F_DUMP = 0x300
_TCA_STATS2 = 7
_TCA_STATS_BASIC = 1
_TCA_STATS_QUEUE = 3
_NETLINK_ROUTE = 0
_NO_CLASS = 0  # nothing has this handle
_DUMP_BYTES = 8192
_ANSWER_BYTES = 2048

_HEADER = Struct("=IHHII")  # nlmsghdr: length, kind, flags, sequence, port
_MESSAGE = Struct("=IHHIIBxxxiIII")  # nlmsghdr, and tcmsg: family, interface, handle, parent, info (a class's leaf)
_ATTRIBUTE = Struct("=HH")
_BASIC = Struct("=HHQI")  # attribute, and gnet_stats_basic: bytes, packets
_QUEUE = Struct("=HHIIIII")  # attribute, and gnet_stats_queue: qlen, backlog, drops, requeues, overlimits


class QueueSample(NamedTuple):
    """A queue's counters at one moment; sent, dropped and overlimits count since the queue was made."""

    sent_bytes: int
    sent_packets: int
    backlog_bytes: int
    queued_packets: int
    dropped_packets: int
    overlimits: int  # how often the queue wanted to send and was not allowed to


class Readings(NamedTuple):
    """Several queues' counters, all of them read between two moments, in the order of the request."""

    began_s: float  # monotonic
    took_s: float
    samples: list[QueueSample | None]  # None: that queue is not there


class QueueReader:
    """Reads queues of one network namespace: the one in which it was made.

    A queue is named by its interface and its qdisc's handle. What is read is the class it hangs under: it counts the same, and
    overlimits too, of which a FIFO knows nothing.
    """

    def __init__(self) -> None:
        """Open a netlink socket in this thread's current namespace."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._classes: dict[tuple[int, int], int] = {}  # of the queues that were found
        self._places = 0, 0  # where the counters were in the last answer: most likely they are there in the next

    def read(self, ifindex: int, handle: int) -> QueueSample:
        """Return the counters of the queue `handle:` of an interface; OSError if it is not there."""
        (sample,) = self.read_many([(ifindex, handle)]).samples
        if sample is None:
            raise OSError(errno.ENOENT, f"no queue {handle:x}: on interface {ifindex}")
        return sample

    def read_many(self, queues: Sequence[tuple[int, int]]) -> Readings:
        """Return the counters of several (interface, handle), at most MOST_AT_ONCE, read one right after the other.

        The kernel answers within the call that sends the requests: being held up before or after it makes no reading older.
        """
        if len(queues) > MOST_AT_ONCE:
            raise ValueError(f"{len(queues)} queues at once are too many: at most {MOST_AT_ONCE}")
        for queue in queues:
            if queue not in self._classes:
                self._find_classes(queue[0])
        first = self._sequence + 1
        self._sequence += len(queues)
        requests = b"".join(
            [_request(_NLM_F_ECHO, number, queue[0], self._classes.get(queue, _NO_CLASS)) for number, queue in enumerate(queues, first)]
        )
        began_s = time.monotonic()
        self._socket.send(requests)
        took_s = time.monotonic() - began_s
        samples = self._take_up(first, len(queues))
        for queue, sample in zip(queues, samples, strict=True):
            if sample is None:
                self._classes.pop(queue, None)
        return Readings(began_s, took_s, samples)

    def close(self) -> None:
        """Close the netlink socket."""
        self._socket.close()

    def _find_classes(self, ifindex: int) -> None:
        """Remember under which class each queue of an interface hangs."""
        self._sequence += 1
        self._socket.send(_request(_NLM_F_DUMP, self._sequence, ifindex, 0))
        with suppress(BlockingIOError):
            while True:
                part = self._socket.recv(_DUMP_BYTES, socket.MSG_DONTWAIT)
                for kind, sequence, message in _messages(part):
                    if sequence != self._sequence:
                        continue
                    if kind != _RTM_NEWTCLASS:
                        return  # the end, or an error
                    *_, class_handle, _, leaf_handle = _MESSAGE.unpack_from(message)
                    self._classes[ifindex, leaf_handle >> 16] = class_handle

    def _take_up(self, first: int, count: int) -> list[QueueSample | None]:
        """Return what was answered to the last requests, from number `first` on; None for an error or no answer."""
        samples: list[QueueSample | None] = [None] * count
        left = count
        while left:
            try:
                answer = self._socket.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            length, kind, _, sequence, _ = _HEADER.unpack_from(answer)
            if not first <= sequence < first + count or kind not in (_RTM_NEWTCLASS, _NLMSG_ERROR):
                continue  # an answer to an earlier request, or other news
            left -= 1
            if kind == _RTM_NEWTCLASS:
                samples[sequence - first] = self._parse(answer[:length])
        return samples

    def _parse(self, answer: bytes) -> QueueSample:
        sample = _at(answer, *self._places)
        if sample is None:
            self._places = _places(answer)
            sample = _at(answer, *self._places)
            assert sample is not None
        return sample


def _request(flag: int, sequence: int, ifindex: int, handle: int) -> bytes:
    return _MESSAGE.pack(_MESSAGE.size, _RTM_GETTCLASS, _NLM_F_REQUEST | flag, sequence, 0, socket.AF_UNSPEC, ifindex, handle, 0, 0)


def _messages(part: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, sequence and bytes of every message in a part of a longer answer."""
    start = 0
    while start + _HEADER.size <= len(part):
        length, kind, _, sequence, _ = _HEADER.unpack_from(part, start)
        if length < _HEADER.size:
            return
        yield kind, sequence, part[start : start + length]
        start += (length + 3) & ~3


def _places(answer: bytes) -> tuple[int, int]:
    """Return where in an answer the basic counters and the queue's are; LookupError if they are not there."""
    start, end = _find(answer, _MESSAGE.size, len(answer), _TCA_STATS2)
    start += _ATTRIBUTE.size
    return _find(answer, start, end, _TCA_STATS_BASIC, _BASIC.size)[0], _find(answer, start, end, _TCA_STATS_QUEUE, _QUEUE.size)[0]


def _at(answer: bytes, basic_at: int, queue_at: int) -> QueueSample | None:
    """Return the counters if they are in these places."""
    if len(answer) < max(basic_at + _BASIC.size, queue_at + _QUEUE.size):
        return None
    _, basic, sent_bytes, sent_packets = _BASIC.unpack_from(answer, basic_at)
    length, queue, queued, backlog, drops, _, overlimits = _QUEUE.unpack_from(answer, queue_at)
    if basic != _TCA_STATS_BASIC or queue != _TCA_STATS_QUEUE or length != _QUEUE.size:
        return None
    return QueueSample(sent_bytes, sent_packets, backlog, queued, drops, overlimits)


def _find(data: bytes, start: int, end: int, wanted: int, least_bytes: int = 0) -> tuple[int, int]:
    """Return where an attribute begins and ends."""
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size or start + length > end:
            break
        if kind == wanted and length >= least_bytes:
            return start, start + length
        start += (length + 3) & ~3
    raise LookupError(f"the kernel's answer has no attribute {wanted} of {least_bytes} bytes")
