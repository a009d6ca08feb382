"""NetSenseML's control law: grow the ratio until the payload fills the path's bandwidth-delay product, then back off.

Every exchange is a probe: its bytes over its time are a sample of bandwidth, its time one of the round trip. BtlBw is the windowed
max of the one, RTprop the windowed min of the other; a payload above `guard` x BtlBw x RTprop is congestion. The paper and the
authors' prototype are two configurations of this one law.

A payload that is itself the fastest of the window is always congestion, as BtlBw x RTprop is then at most the payload: the ratio
grows only while a faster, larger exchange is remembered. Hence the saw, and hence a start-up of few steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from workloads.policies.policy import Decision, Policy, Sample
from workloads.policies.windows import WindowedExtreme


@dataclass(frozen=True)
class NetSenseConstants:
    """The constants of the law; the ratio is the fraction of gradient elements sent."""

    initial: float  # ratio of the first step
    startup_increase: float  # added a step until the first congestion; 0: no start-up phase
    decrease: float  # factor when congested
    increase: float  # added otherwise
    floor: float
    ceiling: float
    guard: float = 0.9  # fraction of the BDP that may be filled
    window_s: float = 10.0  # windows hold the last window_s or window_samples, whichever is more
    window_samples: int = 10
    loss_is_congestion: bool = False  # ours: a retransmission also means congestion

    def __post_init__(self) -> None:
        if not self.floor <= self.initial <= self.ceiling:
            raise ValueError(
                f"NetSense begins at {self.initial:g}, which is not between its floor {self.floor:g} and ceiling {self.ceiling:g}"
            )


PAPER = NetSenseConstants(initial=0.01, startup_increase=0.05, decrease=0.5, increase=0.01, floor=0.005, ceiling=1.0)
PROTOTYPE = NetSenseConstants(initial=0.75, startup_increase=0.0, decrease=0.95, increase=0.001, floor=0.001, ceiling=0.99)


class NetSense(Policy):
    """Follow the bandwidth-delay product of the path."""

    def __init__(self, constants: NetSenseConstants = PAPER) -> None:
        self._constants = constants
        self.reset()

    def reset(self) -> None:
        """Forget the path and start over."""
        constants = self._constants
        self._btlbw = WindowedExtreme(max, constants.window_s, constants.window_samples)  # bytes/s
        self._rtprop = WindowedExtreme(min, constants.window_s, constants.window_samples)
        self._has_sensed = False
        self._is_starting = constants.startup_increase > 0
        self._decision = Decision(ratio=constants.initial)

    def decide(self, sample: Sample) -> Decision:
        """Sense the step just ended and move the ratio; a step without a measurement changes nothing."""
        if not 0 < sample.exchange_s < math.inf or sample.bytes_sent <= 0:
            return self._decision
        constants = self._constants
        btlbw = self._btlbw.update(sample.now_s, sample.bytes_sent / sample.exchange_s)
        rtprop_s = self._rtprop.update(sample.now_s, sample.exchange_s)
        bdp_bytes = btlbw * rtprop_s
        # a first sample alone is its own BDP, so it would always look congested and start-up would end before it began
        congested = self._has_sensed and sample.bytes_sent > constants.guard * bdp_bytes
        if constants.loss_is_congestion:
            congested = congested or bool(sample.retransmits)
        self._has_sensed = True
        self._is_starting = self._is_starting and not congested
        ratio = self._decision.ratio
        if congested:
            ratio *= constants.decrease
        else:
            ratio += constants.startup_increase if self._is_starting else constants.increase
        ratio = min(max(ratio, constants.floor), constants.ceiling)
        self._decision = Decision(ratio, 8 * btlbw, rtprop_s, bdp_bytes, congested)
        return self._decision

    def adopt(self, ratio: float) -> None:
        """Go on from a ratio that somebody who knows the path chose: nothing is left to start up for."""
        self._is_starting = False
        self._decision = replace(self._decision, ratio=ratio)
