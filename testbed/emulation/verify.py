"""Prove the network before training: every shaped direction's rate and queue, and the round-trip times.

A rate is measured by keeping the direction's queue overfull with UDP frames for half a second and counting what the
queue let through. Frames are put straight into the queue of the interface, the way Open vSwitch and the hosts' own
stacks do, and carry a destination that no bridge forwards, so that one direction's trial does not load another.
Directions are measured side by side, as many as keep the machine's packet rate modest.
"""

from __future__ import annotations

import math
import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from controller.queues import QueueReader, QueueSample
from testbed.emulation.fidelity import fidelity
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork, Queue
from testbed.emulation.openvswitch import LEAF_HANDLE
from testbed.emulation.ping import ping
from topologies.model import ETHERNET_HEADER_BYTES

RATE_SECONDS = 0.5
RATE_TOLERANCE = 0.015
RTT_TOLERANCE_S = 0.5e-3
RTT_TOLERANCE = 0.05
# Frames a second, weighted, of all directions measured side by side: what 2 cores keep up with; then fewer; then each alone.
WORK_PER_S = (55_000.0, 30_000.0, 0.0)
BURST_FRAMES = 32
LONGEST_REST_S = 1e-3
SAMPLE_UNCERTAINTY_S = 0.3e-3  # a reading that was held up longer has no time and is left out
LEAST_COVERAGE = 0.2  # share of the trial in which the queue must have been backlogged: 0.1 s, hundreds of frames
PINGS = 15
PING_INTERVAL_S = 0.002
PING_TIMEOUT_S = 2.0
CALIBRATION_ROUNDS = 4
CALIBRATED_S = 0.15e-3
DRAIN_SECONDS = 10.0

_SO_SNDBUFFORCE = 32
_BRIDGE_RESERVED_MAC = bytes.fromhex("0180c2000005")  # IEEE 802.1D: no bridge forwards it, and Open vSwitch has no handler for it
_SOURCE_MAC = bytes.fromhex("02ffffffffff")


class VerificationError(RuntimeError):
    """The network is not what the experiment asked for; the message has the numbers."""


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


@dataclass(frozen=True)
class RttResult:
    """One pair's measured round-trip time, the median over idle pings."""

    source: str
    target: str
    configured_s: float
    measured_s: float
    jitter_s: float

    @property
    def ok(self) -> bool:
        """Tell whether the RTT is within tolerance (links with jitter get its spread on top)."""
        return abs(self.measured_s - self.configured_s) <= max(RTT_TOLERANCE_S, RTT_TOLERANCE * self.configured_s) + self.jitter_s

    @property
    def complaint(self) -> str:
        """Say what is wrong."""
        return f"{self.source} to {self.target} and back takes {self.measured_s * 1e3:.2f} ms, not {self.configured_s * 1e3:.2f}"


@dataclass(frozen=True)
class Verification:
    """What was measured before the first step."""

    rates: list[RateResult]
    rtts: list[RttResult]
    calibration_s: float  # taken off every delayed direction, so that the whole path has the configured RTT
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest."""
        return {**asdict(self), "tolerance": {"rate": RATE_TOLERANCE, "rtt_s": RTT_TOLERANCE_S, "rtt": RTT_TOLERANCE}}


def verify(network: EmulatedNetwork) -> Verification:
    """Measure everything, calibrate the delay, wait for empty queues; raise when a number is out of tolerance."""
    began = time.monotonic()
    calibration_s, rtts = _calibrated_rtts(network)
    rates = _rates(network)
    drain(network)
    result = Verification(rates, rtts, calibration_s, time.monotonic() - began)
    wrong = [rate.complaint for rate in rates if not rate.ok] + [rtt.complaint for rtt in rtts if not rtt.ok]
    if wrong:
        raise VerificationError("the emulated network is not faithful: " + "; ".join(wrong))
    return result


def drain(network: EmulatedNetwork) -> None:
    """Wait until every queue is empty."""
    deadline = time.monotonic() + DRAIN_SECONDS
    for queue in _shaped(network):
        counter = Counter(queue)
        while counter.read().backlog_bytes:
            if time.monotonic() > deadline:
                raise VerificationError(f"the queue of {queue.direction.name} did not drain in {DRAIN_SECONDS:.0f} s")
            time.sleep(0.002)
        counter.close()


class Counter:
    """Reads one queue from whatever namespace it is in."""

    def __init__(self, queue: Queue) -> None:
        with network_namespace(queue.namespace_pid):
            self._reader = QueueReader()
            self._ifindex = socket.if_nametoindex(queue.interface)

    def close(self) -> None:
        """Close its socket."""
        self._reader.close()

    def read(self) -> QueueSample:
        """Return the queue's counters now."""
        return self._reader.read(self._ifindex, LEAF_HANDLE)


def _shaped(network: EmulatedNetwork) -> list[Queue]:
    return [queue for queue in network.queues if queue.direction.spec.rate_bps is not None]


def _rates(network: EmulatedNetwork) -> list[RateResult]:
    results: dict[str, RateResult] = {}
    with realtime():
        for work_per_s in WORK_PER_S:  # what a busy moment spoiled is tried again, with fewer beside it
            left = [q for q in _shaped(network) if (r := results.get(q.direction.name)) is None or not r.ok]
            for group in _groups(left, network, work_per_s):
                results.update(_measure_together(group, network.mtu))
    missing = [queue.direction.name for queue in _shaped(network) if queue.direction.name not in results]
    if missing:
        raise VerificationError(f"this machine was too busy to keep the queue of {', '.join(missing)} full; stop other work and run again")
    return [results[queue.direction.name] for queue in _shaped(network)]


def _groups(queues: list[Queue], network: EmulatedNetwork, work_per_s: float) -> Iterator[list[Queue]]:
    frame_bits = (network.mtu + ETHERNET_HEADER_BYTES) * 8
    switches = network.description.switches
    group: list[Queue] = []
    load = 0.0
    for queue in queues:
        direction = queue.direction
        # What a frame costs the machine beyond its own queue: a switch that takes it, a delay line that carries it.
        work = 1 + (direction.target in switches) + 2 * direction.spec.is_delayed
        cost = work * (direction.spec.rate_bps or 0.0) / frame_bits
        if group and load + cost > work_per_s:
            yield group
            group, load = [], 0.0
        group.append(queue)
        load += cost
    if group:
        yield group


@contextmanager
def realtime() -> Iterator[None]:
    """Let no ordinary process hold the trial up; Open vSwitch and the delay line still go before it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _measure_together(queues: list[Queue], mtu: int) -> dict[str, RateResult]:
    """Keep all of the queues overfull from one loop; return those that were backlogged long enough to judge."""
    frame = _udp_frame(mtu)
    trials = [_Trial(queue, frame) for queue in queues]
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
        spec = queue.direction.spec
        assert spec.rate_bps is not None and spec.queue_bytes is not None
        self._rate_bps, self._queue_bytes = spec.rate_bps, spec.queue_bytes
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
            for _ in range(BURST_FRAMES):
                self._sender.send(self._frame)
        before = time.monotonic()
        sample = self._counter.read()
        if time.monotonic() - before < SAMPLE_UNCERTAINTY_S:
            self._samples.append((before, sample.sent_bytes, sample.backlog_bytes, self._rate_bps))

    def result(self) -> RateResult | None:
        """Close the sockets and return what was measured, None if the queue was not kept full."""
        self._sender.close()
        self._counter.close()
        columns = np.array(self._samples, dtype=np.float64).T
        judged = fidelity(*columns)
        if judged.value is None or judged.coverage < LEAST_COVERAGE:
            return None
        measured_bps = judged.value * self._rate_bps
        return RateResult(self._queue.direction.name, self._rate_bps, measured_bps, self._queue_bytes, int(columns[2].max()))


def _udp_frame(mtu: int) -> bytes:
    """Build a full-size UDP/IPv4 frame from and to the unassigned addresses of RFC 5737."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, mtu, 0, 0, 1, 17, 0, bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
    udp = struct.pack("!HHHH", 9, 9, mtu - 20, 0)
    return (_BRIDGE_RESERVED_MAC + _SOURCE_MAC + b"\x08\x00" + ip + udp).ljust(mtu + ETHERNET_HEADER_BYTES, b"\0")


def _calibrated_rtts(network: EmulatedNetwork) -> tuple[float, list[RttResult]]:
    """Take what switches and wake-ups add off the delay elements, until the configured RTT is measured."""
    calibration_s = 0.0
    best_s, best_calibration_s, best_rtts = math.inf, 0.0, measure_rtts(network)
    rtts = best_rtts
    for _ in range(CALIBRATION_ROUNDS):
        delayed = {rtt: crossings for rtt in rtts if (crossings := _delayed_crossings(network, rtt))}
        if not delayed:
            break
        worst_s = max(abs(rtt.measured_s - rtt.configured_s) for rtt in delayed)
        if worst_s < best_s:
            best_s, best_calibration_s, best_rtts = worst_s, calibration_s, rtts
        if worst_s < CALIBRATED_S:
            break
        excess_s = statistics.median((rtt.measured_s - rtt.configured_s) / crossings for rtt, crossings in delayed.items())
        calibration_s = max(0.0, calibration_s + excess_s)
        _hold_less(network, calibration_s)
        rtts = measure_rtts(network)
    if calibration_s != best_calibration_s:
        _hold_less(network, best_calibration_s)
    return best_calibration_s, best_rtts


def _delayed_crossings(network: EmulatedNetwork, rtt: RttResult) -> int:
    description = network.description
    crossed = description.path(rtt.source, rtt.target) + description.path(rtt.target, rtt.source)
    return sum(direction.spec.delay_s > 0 for direction in crossed)


def _hold_less(network: EmulatedNetwork, calibration_s: float) -> None:
    assert network.delay is not None
    for direction in network.description.directions():
        if direction.spec.delay_s > 0:
            network.delay.set_delay(direction.name, max(0.0, direction.spec.delay_s - calibration_s))


def measure_rtts(network: EmulatedNetwork) -> list[RttResult]:
    """Ping every host from the first one, which crosses every link of a tree."""
    description = network.description
    source, *targets = description.hosts
    with network_namespace(network.host_pids[source]):
        ping([network.address(target) for target in targets], 1, PING_INTERVAL_S, PING_TIMEOUT_S)  # ARP, and the switches learn
        answers = ping([network.address(target) for target in targets], PINGS, PING_INTERVAL_S, PING_TIMEOUT_S)
    results = []
    for target in targets:
        rtts_s = answers[network.address(target)]
        crossed = description.path(source, target) + description.path(target, source)
        if len(rtts_s) < PINGS / 2 and not any(direction.spec.loss for direction in crossed):
            raise VerificationError(f"{source} cannot reach {target}: {len(rtts_s)} of {PINGS} pings answered")
        jitter_s = sum(direction.spec.jitter_s for direction in crossed)
        measured_s = statistics.median(rtts_s) if rtts_s else math.inf
        results.append(RttResult(source, target, description.base_rtt_s(source, target), measured_s, jitter_s))
    return results
