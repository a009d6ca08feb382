"""DC2-style control: compress so far that the exchange takes as long as the computation it can hide behind.

The paper's own law is not public; these three are ours. T is the median compute time of the last steps, under traffic as they were:
(1) each step, D = the slowest worker's exchange; Dhat = EWMA(D), then V = EWMA(|D - Dhat|). The first sample sets Dhat = D, V = 0.
(2) every `period_steps` since the last decision, or in every step while Dhat is off the target T by more than `far`, the law moves r.
Dhat lags: while r moves by large factors it still remembers the old exchanges, so from r = 1 the proportional law first goes too
low, then returns. Nothing here corrects for that, as the sheet does not; the excursion lasts some 30 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from workloads.policies.policy import Decision, Policy, Sample
from workloads.policies.windows import RecentMedian

Law = Literal["proportional", "ladder", "aimd"]


@dataclass(frozen=True)
class Dc2Constants:
    """The constants of monitor and laws."""

    law: Law = "proportional"
    target_s: float | None = None  # of the exchange; None: the step's compute time
    floor: float = 0.001  # smallest ratio
    delay_gain: float = 1 / 8  # of the EWMA Dhat
    deviation_gain: float = 1 / 4  # of the EWMA V
    period_steps: int = 5  # between decisions
    far: float = 2.0  # off the target by more than this factor: decide every step
    exponent: float = 0.7  # proportional: r x (T / Dhat)^exponent
    change: tuple[float, float] = (0.5, 2.0)  # proportional: limits of one change
    far_change: tuple[float, float] = (0.1, 10.0)  # the same while far off
    levels: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01, 0.005, 0.001)  # ladder
    too_slow: float = 1.2  # ladder: one down if Dhat is above this multiple of T
    fast_enough: float = 0.8  # ladder: one up after `patience` periods with Dhat under this multiple of T
    patience: int = 3
    deviations: float = 4.0  # aimd: decrease if Dhat is above T by this multiple of V
    decrease: float = 0.5  # aimd: factor
    increase: float = 0.01  # aimd: added otherwise
    compute_samples: int = 10  # T is their median: an evaluation or a hiccup may sit in one of them

    def __post_init__(self) -> None:
        if self.law not in get_args(Law):
            raise ValueError(f"unknown DC2 law {self.law!r}: use one of {', '.join(get_args(Law))}")


class Dc2(Policy):
    """Steer the exchange's smoothed time to the target."""

    def __init__(self, constants: Dc2Constants = Dc2Constants()) -> None:  # noqa: B008 - frozen
        self._constants = constants
        self.reset()

    def reset(self) -> None:
        """Start over without compression."""
        self._ratio = 1.0
        self._level = 0
        self._quick_periods = 0  # ladder: consecutive ones with Dhat well under T
        self._since_decision = 0
        self._delay_s = 0.0  # Dhat; 0 before the first sample
        self._deviation_s = 0.0  # V
        self._compute = RecentMedian(self._constants.compute_samples)
        self._target_s = self._constants.target_s or 0.0

    def decide(self, sample: Sample) -> Decision:
        """Monitor the step just ended and, when it is time, move the ratio."""
        if self._constants.target_s is None and 0 < sample.compute_s < math.inf:
            self._target_s = self._compute.update(sample.compute_s)
        if 0 < sample.slowest_exchange_s < math.inf:
            self._monitor(sample.slowest_exchange_s)
            if self._target_s > 0:
                self._control(self._delay_s / self._target_s)
        return Decision(ratio=self._ratio)

    def _monitor(self, exchange_s: float) -> None:
        constants = self._constants
        if self._delay_s > 0:
            self._delay_s += constants.delay_gain * (exchange_s - self._delay_s)
            self._deviation_s += constants.deviation_gain * (abs(exchange_s - self._delay_s) - self._deviation_s)
        else:
            self._delay_s = exchange_s

    def _control(self, load: float) -> None:
        """Move the ratio; load = Dhat / T."""
        constants = self._constants
        is_far = load > constants.far or load < 1 / constants.far
        self._since_decision += 1
        if self._since_decision < constants.period_steps and not is_far:
            return
        self._since_decision = 0
        if constants.law == "proportional":
            ratio = self._ratio * self._proportional_change(load, constants.far_change if is_far else constants.change)
        elif constants.law == "ladder":
            ratio = self._next_level(load)
        else:
            congested = self._delay_s > self._target_s + constants.deviations * self._deviation_s
            ratio = self._ratio * constants.decrease if congested else self._ratio + constants.increase
        self._ratio = min(max(ratio, constants.floor), 1.0)

    def _proportional_change(self, load: float, limits: tuple[float, float]) -> float:
        low, high = limits
        wanted = load**-self._constants.exponent if load > 0 else high
        return min(max(wanted, low), high)

    def _next_level(self, load: float) -> float:
        constants = self._constants
        self._quick_periods = self._quick_periods + 1 if load < constants.fast_enough else 0
        if load > constants.too_slow:
            self._level = min(self._level + 1, len(constants.levels) - 1)
        elif self._quick_periods >= constants.patience:
            self._level, self._quick_periods = max(self._level - 1, 0), 0
        return constants.levels[self._level]
