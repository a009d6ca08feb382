"""What background flows delivered, interval by interval: the payload that reached the receiving end of TCP or UDP.

TCP: the kernel's own counters of both ends of every stream, read at one moment: bytes received in order, segments sent again.
UDP, of which the kernel counts nothing by flow: the datagrams that iperf3's server read, and those whose numbers were missing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workloads.sensing.tcpinfo import TcpInfo, parse

LEAST_S = 0.1  # a flow begins and ends within an interval of its server: a shorter piece is told with the next one
_TCP_INFO_BYTES = 512
_CLOSED = 7
# "[SUM]   2.50-3.00   sec   594 KBytes  9725 Kbits/sec  0.576 ms  45/458 (9.8%)", and no more on the line: the summary has
_SERVER_LINE = re.compile(
    r"\[ *(?P<stream>SUM|\d+)\] +(?P<start>[\d.]+)-(?P<end>[\d.]+) +sec .* (?P<lost>-?\d+)/(?P<total>\d+) \([^)]*\) *"
)


@dataclass(frozen=True)
class Interval:
    """What all flows of one entry delivered from one moment (monotonic) to another."""

    start_s: float
    end_s: float
    received_bytes: int
    retransmits: int | None = None  # segments, TCP only
    lost_packets: int | None = None  # datagrams, UDP only


class Meter(Protocol):
    """Tells the intervals of one entry, without a gap between them."""

    def begin(self, now_s: float) -> None:
        """Count from now on."""

    def read(self, now_s: float) -> list[Interval]:
        """Return the intervals that have ended since the last call."""

    def is_over(self, stopped_s: float) -> bool:
        """Tell whether nothing more can come of flows that were stopped at this time."""


class TcpMeter:
    """Reads both ends of every stream."""

    def __init__(self, senders: Sequence[socket.socket], receivers: Sequence[socket.socket]) -> None:
        """Take duplicates of the sockets; once the senders are closed, what was sent again before is lost to the count."""
        self._senders, self._receivers = senders, receivers
        self._since_s, self._received, self._retransmitted = 0.0, 0, 0

    def begin(self, now_s: float) -> None:
        """Count from now on."""
        self._since_s, self._received, self._retransmitted = now_s, self._total_received(), self._total_retransmitted()

    def read(self, now_s: float) -> list[Interval]:
        """Return the one interval since the last call."""
        received, retransmitted = self._total_received(), self._total_retransmitted()
        interval = Interval(self._since_s, now_s, received - self._received, retransmitted - self._retransmitted)
        self._since_s, self._received, self._retransmitted = now_s, received, retransmitted
        return [interval]

    def is_over(self, stopped_s: float) -> bool:
        """Tell whether every receiver has been reset: that word came behind the last of the data."""
        return all(_info(one).state == _CLOSED for one in self._receivers)

    def _total_received(self) -> int:
        return sum(_info(one).bytes_received or 0 for one in self._receivers)

    def _total_retransmitted(self) -> int:
        """Return the sum over the senders; what it was, once they are closed."""
        if any(one.fileno() < 0 for one in self._senders):
            return self._retransmitted
        return sum(_info(one).total_retrans for one in self._senders)


class UdpMeter:
    """Reads the log of iperf3's server, whose intervals are those of a clock of its own."""

    def __init__(self, log: Path, server_began_s: float, payload_bytes: int, flows: int) -> None:
        """`server_began_s` is the zero of the server's clock."""
        self._log, self._zero_s, self._payload_bytes = log, server_began_s, payload_bytes
        self._sums = flows > 1  # one flow has no line for the sum
        self._place = 0
        self._pending = ""
        self._since_s, self._received, self._lost = 0.0, 0, 0
        self._quiet_from_s: float | None = None  # since when nothing has come

    def begin(self, now_s: float) -> None:
        """Count from now on; what the log says of the time before is passed over."""
        self._since_s, self._place = now_s, self._log.stat().st_size

    def read(self, now_s: float) -> list[Interval]:
        """Return the intervals that the server has told of since the last call."""
        found = []
        for start_s, end_s, lost, total in self._told():
            if end_s <= self._since_s:
                continue
            self._received += total - lost
            self._lost += lost
            if total:
                self._quiet_from_s = None
            elif self._quiet_from_s is None:
                self._quiet_from_s = start_s
            if end_s - self._since_s >= LEAST_S:
                found.append(self._interval(end_s))
        return found

    def is_over(self, stopped_s: float) -> bool:
        """Tell whether an interval that began after the stop brought nothing."""
        return self._quiet_from_s is not None and self._quiet_from_s >= stopped_s

    def silence(self, now_s: float) -> list[Interval]:
        """Return the time since the last interval as one, where the server has ended and tells no more."""
        return [self._interval(now_s)]

    def _interval(self, end_s: float) -> Interval:
        interval = Interval(self._since_s, end_s, self._received * self._payload_bytes, lost_packets=self._lost)
        self._since_s, self._received, self._lost = end_s, 0, 0
        return interval

    def _told(self) -> Iterator[tuple[float, float, int, int]]:
        with self._log.open() as log:
            log.seek(self._place)
            text = log.read()
            self._place = log.tell()
        *lines, self._pending = (self._pending + text).split("\n")
        for line in lines:
            if (told := _SERVER_LINE.fullmatch(line)) and (told["stream"] == "SUM") == self._sums:
                yield self._zero_s + float(told["start"]), self._zero_s + float(told["end"]), int(told["lost"]), int(told["total"])


def _info(one: socket.socket) -> TcpInfo:
    info = parse(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES))
    assert info is not None
    return info
