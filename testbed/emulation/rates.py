"""Measure what rate and queue every shaped direction really has.

A direction's queue is kept overfull with UDP frames for half a second, and what the queue let through is counted. Frames are put
straight into the queue of the interface, the way Open vSwitch and the hosts' own stacks do, and carry a destination that no
bridge forwards, so that one direction's trial does not load another. Directions are measured side by side, as many as the
machine keeps up with.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from testbed.emulation.counters import Counter, VerificationError, realtime
from testbed.emulation.fidelity import fidelity
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork, Queue
from topologies.model import ETHERNET_HEADER_BYTES

RATE_SECONDS = 0.5
RATE_TOLERANCE = 0.015
# Frames a second, weighted, of all directions measured side by side: what 2 cores keep up with; then fewer; then each alone, again and
# again: a machine that stands still for a millisecond now and then spoils one trial in ten, a wrong link fails in all of them.
WORK_PER_S = (55_000.0, 30_000.0, *6 * (0.0,))
PAUSE_S = 0.2  # before each is measured alone
BURST_FRAMES = 32
LONGEST_REST_S = 1e-3
LEAST_COVERAGE = 0.2  # share of the trial in which the queue must have been backlogged: 0.1 s, hundreds of frames

_SO_SNDBUFFORCE = 32
_BRIDGE_RESERVED_MAC = bytes.fromhex("0180c2000005")  # IEEE 802.1D: no bridge forwards it, and Open vSwitch has no handler for it
_DISCARD_PORT = 9
_SOURCE_MAC = bytes.fromhex("02ffffffffff")


@dataclass(frozen=True)
class RateResult:
    """One direction's measured rate."""

    direction: str
    configured_bps: float
    measured_bps: float
    queue_bytes: int
    largest_backlog_bytes: int

    @property
    def ok(self) -> bool:
        """Tell whether the rate is within tolerance."""
        return abs(self.measured_bps / self.configured_bps - 1) <= RATE_TOLERANCE

    @property
    def complaint(self) -> str:
        """Say what is wrong."""
        return f"{self.direction} carries {self.measured_bps / 1e6:.2f} Mbit/s where {self.configured_bps / 1e6:.2f} were asked for"


def measure_rates(network: EmulatedNetwork) -> list[RateResult]:
    """Measure every shaped direction; what a busy moment spoiled is measured again."""
    results: dict[str, RateResult] = {}
    with realtime():
        for work_per_s in WORK_PER_S:  # what a busy moment spoiled is tried again, with fewer beside it
            left = [q for q in network.queues if (r := results.get(q.name)) is None or not r.ok]
            if left and not work_per_s:
                time.sleep(PAUSE_S)
            for group in _groups(left, network, work_per_s):
                results.update(_measure_together(group, network))
    missing = [queue.name for queue in network.queues if queue.name not in results]
    if missing:
        raise VerificationError(f"this machine was too busy to keep the queue of {', '.join(missing)} full; stop other work and run again")
    return [results[queue.name] for queue in network.queues]


def _groups(queues: list[Queue], network: EmulatedNetwork, work_per_s: float) -> Iterator[list[Queue]]:
    frame_bits = (network.mtu + ETHERNET_HEADER_BYTES) * 8
    switches = network.description.switches
    group: list[Queue] = []
    load = 0.0
    for queue in queues:
        direction = queue.direction
        # What a frame costs the machine beyond its own queue: a switch that takes it, a delay line that carries it.
        work = 1 + (direction.target in switches) + 4 * direction.spec.is_delayed
        cost = work * queue.rate_bps / frame_bits
        shares_a_link = any(other.direction == direction for other in group)  # classes of one link: each is to have it alone
        if group and (load + cost > work_per_s or shares_a_link):
            yield group
            group, load = [], 0.0
        group.append(queue)
        load += cost
    if group:
        yield group


def _measure_together(queues: list[Queue], network: EmulatedNetwork) -> dict[str, RateResult]:
    """Keep all of the queues overfull from one loop; return those that were backlogged long enough to judge."""
    trials = [_Trial(queue, _udp_frame(network, queue)) for queue in queues]
    # Rest between rounds, but never so long that a full queue runs low: a busy loop would starve what it measures.
    rest_s = min(LONGEST_REST_S, *(trial.drains_in_s / 5 for trial in trials))
    until = time.monotonic() + RATE_SECONDS
    while time.monotonic() < until:
        for trial in trials:
            trial.fill()
        time.sleep(rest_s)
    results = [trial.result() for trial in trials]
    return {result.direction: result for result in results if result is not None}


class _Trial:
    """One queue under overload."""

    def __init__(self, queue: Queue, frame: bytes) -> None:
        self._queue = queue
        self._frame = frame
        self._rate_bps, self._queue_bytes = queue.rate_bps, queue.queue_bytes
        self.drains_in_s = self._queue_bytes * 8 / self._rate_bps
        self._counter = Counter(queue)
        with network_namespace(queue.namespace_pid):
            self._sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._sender.bind((queue.interface, 0))
        # A very deep queue is not filled to its brim: draining it would take too long.
        held_bytes = min(4 * self._queue_bytes, int(self._rate_bps / 8 * RATE_SECONDS))
        self._sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, max(held_bytes, 16 * len(frame)))
        self._sender.setblocking(False)
        self._samples: list[tuple[float, int, int, float]] = []

    def fill(self) -> None:
        """Top the queue up until it refuses (ENOBUFS: full) or enough is under way, then sample it."""
        with suppress(OSError):
            for _ in range(BURST_FRAMES if self._samples else BURST_FRAMES + self._queue_bytes // len(self._frame)):
                self._sender.send(self._frame)
        if (reading := self._counter.timed()) is not None:
            at, sample = reading
            self._samples.append((at, sample.sent_bytes, sample.backlog_bytes, self._rate_bps))

    def result(self) -> RateResult | None:
        """Close the sockets and return what was measured, None if the queue was not kept full."""
        self._sender.close()
        self._counter.close()
        columns = np.array(self._samples, dtype=np.float64).T
        judged = fidelity(*columns)
        if judged.value is None or judged.coverage < LEAST_COVERAGE:
            return None
        measured_bps = judged.value * self._rate_bps
        return RateResult(self._queue.name, self._rate_bps, measured_bps, self._queue_bytes, int(columns[2].max()))


def _udp_frame(network: EmulatedNetwork, queue: Queue) -> bytes:
    """Build a full-size UDP/IPv4 frame that only this queue claims; its addresses are otherwise the unassigned ones of RFC 5737."""
    mtu, kind = network.mtu, queue.kind
    others = [one for one in queue.direction.spec.classes if one.name != kind.name]
    marks, ports = {one.dscp for one in others}, {one.port for one in others}
    mark = kind.dscp if kind.dscp is not None else next(dscp for dscp in range(65) if dscp not in marks) % 64
    unclaimed = next(port for port in range(_DISCARD_PORT, 1 << 16) if port not in ports)
    tos, port = mark << 2, kind.port or unclaimed
    source = socket.inet_aton(network.address(kind.hosts[0])) if kind.hosts else bytes([192, 0, 2, 1])
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, tos, mtu, 0, 0, 1, 17, 0, source, bytes([192, 0, 2, 2]))
    udp = struct.pack("!HHHH", unclaimed, port, mtu - 20, 0)
    return (_BRIDGE_RESERVED_MAC + _SOURCE_MAC + b"\x08\x00" + ip + udp).ljust(mtu + ETHERNET_HEADER_BYTES, b"\0")
