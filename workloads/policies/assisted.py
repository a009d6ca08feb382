"""NetSense helped by the controller: bandwidth and round trip are told instead of probed, so the ratio is right after one step.

While telemetry is fresh, each step (1) BDP = available rate x rounds x base round trip, less what waits in the bottleneck's queue;
(2) payload = guard x BDP, the most that NetSense would not call congestion on a path it knew exactly; (3) ratio = payload / what a
unit of ratio costs. Where telemetry is old or missing, NetSense's own decision counts: it is fed every step, and goes on from the
ratio in use. Ours; neither the paper nor the prototype has it.

What a unit of ratio costs is taken from the last sparse exchange, in pairs of FP32 values: a pair with an FP16 value has three
quarters of its bytes, whatever the number of workers. Bytes jump where the codec changes the value's type; a payload that falls
into the gap gets the largest ratio below it, else the ratio would go to and fro. A dense exchange tells neither that cost nor the
rounds of a sparse one, and counts only until a sparse one was seen: so whether to go dense does not depend on having gone dense.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from workloads.policies.netsense import PAPER, NetSense, NetSenseConstants
from workloads.policies.policy import SENSING, TELEMETRY, Decision, Policy, Sample

_HALF_PAIR = 6 / 8  # bytes of an index and an FP16 value, against those with an FP32 value


@dataclass(frozen=True)
class AssistedConstants:
    """The constants of the assistance, and the law behind it."""

    sensing: NetSenseConstants = PAPER  # falls back on this law; its initial ratio, floor, ceiling and guard hold for both
    max_age_s: float = 1.0  # older telemetry is not believed
    least_rtt_s: float = 0.001  # of a path without configured delay: what its switches and hosts take at least
    half_below: float = 0.1  # the codec's: values travel as FP16 at ratios below


class AssistedNetSense(Policy):
    """Fill the bandwidth-delay product that the controller tells."""

    assisted = True

    def __init__(self, constants: AssistedConstants = AssistedConstants()) -> None:  # noqa: B008 - frozen
        self._constants = constants
        self._sensing = NetSense(constants.sensing)
        self.reset()

    def reset(self) -> None:
        """Forget the path and the costs, and start over."""
        self._sensing.reset()
        self._unit_bytes = 0.0  # what ratio 1 would cost, values in FP32
        self._rounds = math.inf  # the fewest seen: a dense exchange takes more
        self._decision = Decision(ratio=self._constants.sensing.initial)

    def decide(self, sample: Sample) -> Decision:
        """Do as told, or sense; a step that sent nothing changes nothing."""
        sensed = self._sensing.decide(sample)
        if sample.bytes_sent <= 0:
            return self._decision
        self._learn_costs(sample)
        told = self._told(sample)
        if told is not None:
            self._sensing.adopt(told.ratio)
        self._decision = told or replace(sensed, source=SENSING)
        return self._decision

    def _learn_costs(self, sample: Sample) -> None:
        ratio = max(sample.ratio, self._constants.sensing.floor)
        unit_bytes = sample.bytes_sent / (ratio * self._pair(ratio))
        # a dense ring sends the gradient at least once; a sparse exchange that sends more than that shows by its price
        if sample.bytes_sent < sample.dense_bytes or unit_bytes > self._unit_bytes:
            self._unit_bytes = unit_bytes
        self._rounds = min(self._rounds, max(1.0, sample.rounds))

    def _told(self, sample: Sample) -> Decision | None:
        """Decide by telemetry; None where there is none to go by."""
        constants, law = self._constants, self._constants.sensing
        available_bps, backlog_bytes, base_rtt_s = sample.available_bps, sample.backlog_bytes, sample.base_rtt_s
        if not sample.telemetry_age_s <= constants.max_age_s or available_bps is None or backlog_bytes is None or base_rtt_s is None:
            return None
        rtprop_s = self._rounds * max(base_rtt_s, constants.least_rtt_s)
        bdp_bytes = max(0.0, available_bps / 8 * rtprop_s - backlog_bytes)
        payload_bytes = law.guard * bdp_bytes
        ratio = min(max(self._ratio_for(payload_bytes), law.floor), law.ceiling)
        return Decision(ratio, available_bps, rtprop_s, bdp_bytes, sample.bytes_sent > payload_bytes, TELEMETRY)

    def _ratio_for(self, payload_bytes: float) -> float:
        """Return the largest ratio whose sparse exchange sends no more."""
        full = payload_bytes / self._unit_bytes
        half, half_below = full / _HALF_PAIR, self._constants.half_below
        return half if half < half_below else max(full, math.nextafter(half_below, 0.0))

    def _pair(self, ratio: float) -> float:
        """Return the size of a pair at a ratio, relative to one of FP32."""
        return _HALF_PAIR if ratio < self._constants.half_below else 1.0
