"""Measure round-trip times, and take off the delay elements what switches and wake-ups add."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from testbed.emulation.counters import VerificationError
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork
from testbed.emulation.ping import ping

RTT_TOLERANCE_S = 0.5e-3
RTT_TOLERANCE = 0.05
PINGS = 9  # of each host, and more when there are few of them
LEAST_PINGS = 36  # of all hosts together
PING_INTERVAL_S = 0.002
PING_TIMEOUT_S = 2.0
CALIBRATION_ROUNDS = 12  # most networks need two; on a busy machine a round may be spoilt
CALIBRATED_S = 0.15e-3


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


def calibrate(network: EmulatedNetwork) -> tuple[float, list[RttResult]]:
    """Take what switches and wake-ups add off the delay elements, until the configured RTT is measured."""
    measure_rtts(network)  # the switches learn where everybody is
    calibration_s, rtts = 0.0, measure_rtts(network)
    if not _delayed(network, rtts):  # nothing to put right yet, but perhaps later
        network.calibration_s = _added_by_elements_s(network, rtts)
        return 0.0, rtts
    best_s, best_calibration_s, best_rtts = _worst_s(network, rtts), calibration_s, rtts
    for _ in range(CALIBRATION_ROUNDS):
        if best_s < CALIBRATED_S:
            break
        excess_s = statistics.median((rtt.measured_s - rtt.configured_s) / crossings for rtt, crossings in _delayed(network, rtts))
        calibration_s = max(0.0, calibration_s + excess_s)
        _hold_less(network, calibration_s)
        rtts = measure_rtts(network)
        worst_s = _worst_s(network, rtts)
        if worst_s < best_s:
            best_s, best_calibration_s, best_rtts = worst_s, calibration_s, rtts
    if calibration_s != best_calibration_s:
        _hold_less(network, best_calibration_s)
    return best_calibration_s, best_rtts


def _added_by_elements_s(network: EmulatedNetwork, rtts: list[RttResult]) -> float:
    """Return what each crossing of a delay element that holds nothing adds to a round trip."""
    description, shares = network.description, []
    for rtt in rtts:
        crossed = description.path(rtt.source, rtt.target) + description.path(rtt.target, rtt.source)
        if elements := sum(network.has_delay_element(direction) for direction in crossed):
            shares.append(max(0.0, rtt.measured_s - rtt.configured_s) / elements)
    return statistics.median(shares) if shares else 0.0


def _worst_s(network: EmulatedNetwork, rtts: list[RttResult]) -> float:
    """Return the largest error that the delay elements could mend; none where nothing is delayed."""
    return max((abs(rtt.measured_s - rtt.configured_s) for rtt, _ in _delayed(network, rtts)), default=0.0)


def _delayed(network: EmulatedNetwork, rtts: list[RttResult]) -> list[tuple[RttResult, int]]:
    """Return the pairs whose path crosses delayed directions, and how many."""
    return [(rtt, crossings) for rtt in rtts if (crossings := _delayed_crossings(network, rtt))]


def _delayed_crossings(network: EmulatedNetwork, rtt: RttResult) -> int:
    description = network.description
    crossed = description.path(rtt.source, rtt.target) + description.path(rtt.target, rtt.source)
    return sum(direction.spec.delay_s > 0 for direction in crossed)


def _hold_less(network: EmulatedNetwork, calibration_s: float) -> None:
    assert network.delay is not None
    network.calibration_s = calibration_s
    for direction in network.description.directions():
        if direction.spec.delay_s > 0:
            network.delay.change(direction.name, network.held_s(direction.spec.delay_s))


def measure_rtts(network: EmulatedNetwork) -> list[RttResult]:
    """Ping every host from the first one, which crosses every link of a tree."""
    description = network.description
    source, *targets = description.all_hosts
    with network_namespace(network.host_pids[source]):
        pings = max(PINGS, LEAST_PINGS // len(targets))
        longest_s = max(description.base_rtt_s(source, target) for target in targets)
        answers = ping([network.address(target) for target in targets], pings, PING_INTERVAL_S, PING_TIMEOUT_S + longest_s)
    results = []
    for target in targets:
        rtts_s = answers[network.address(target)]
        crossed = description.path(source, target) + description.path(target, source)
        if len(rtts_s) < pings / 2 and not any(direction.spec.loss for direction in crossed):
            raise VerificationError(f"{source} cannot reach {target}: {len(rtts_s)} of {pings} pings answered")
        jitter_s = sum(direction.spec.jitter_s for direction in crossed)
        measured_s = statistics.median(rtts_s) if rtts_s else math.inf
        results.append(RttResult(source, target, description.base_rtt_s(source, target), measured_s, jitter_s))
    return results
