"""Spend the time that is free: the largest ratio whose exchange takes no longer than the compute it can hide behind.

Each step (1) fit the exchange's time as t0 + bytes / B: t0 from the last two consecutive samples of clearly different size, as
a change of the bandwidth falls between samples of about equal size and so does not look like a t0; B, given t0, from the last few
samples; (2) ask for the bytes that take `share` x compute; (3) turn them into a ratio by what a unit of ratio last cost.

Until two sizes were seen t0 = 0, and every change is at least `probe`. A wrong t0 only slows the approach: whatever is believed of
it, the fixed point is where the exchange takes the budget. The same holds for the part of the bytes that the ratio does not move.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from workloads.policies.policy import Decision, Policy, Sample
from workloads.policies.windows import RecentMedian, WindowedExtreme

_SHORTEST_S, _LONGEST_S = 1e-9, 1e9  # no measurement lies outside; quotients of what lies inside are finite


@dataclass(frozen=True)
class BudgetConstants:
    """The constants of the estimates."""

    share: float = 1.0  # of the compute time that the exchange may take
    initial: float = 0.01  # ratio of the first step: small, as a dense one may take minutes
    floor: float = 0.001
    ceiling: float = 1.0
    change: tuple[float, float] = (0.1, 10.0)  # limits of one change of the ratio
    lever: float = 1.5  # sizes that differ by this factor tell t0 from B in spite of noise
    probe: float = 2.0  # least change of the ratio until two such sizes were seen
    largest_fixed: float = 0.7  # t0 at most, as a fraction of the shortest exchange: bounds what noise does to B
    rate_samples: int = 3  # B is the median of so many: outvotes a hiccup, follows a change after two
    compute_samples: int = 10  # the compute time is their median: an evaluation may sit in one of them
    window_s: float = 10.0  # the shortest exchange is that of the last window_s or window_samples, whichever is more
    window_samples: int = 10


class Budget(Policy):
    """Fill the compute time with communication."""

    def __init__(self, constants: BudgetConstants = BudgetConstants()) -> None:  # noqa: B008 - frozen
        self._constants = constants
        self.reset()

    def reset(self) -> None:
        """Forget the path and start over."""
        constants = self._constants
        self._compute = RecentMedian(constants.compute_samples)
        self._shortest = WindowedExtreme(min, constants.window_s, constants.window_samples)
        self._recent: deque[tuple[int, float]] = deque(maxlen=constants.rate_samples)  # (bytes, seconds), the newest last
        self._fixed_s: float | None = None  # t0 as the last pair tells it, in spite of noise perhaps negative or too large
        self._unit_bytes = 0.0  # what ratio 1 would cost at the price of the last sparse exchange
        self._decision = Decision(ratio=constants.initial)

    def decide(self, sample: Sample) -> Decision:
        """Learn from the step just ended and fill the next one; a step without a measurement changes nothing."""
        if sample.bytes_sent <= 0 or not all(_SHORTEST_S < seconds < _LONGEST_S for seconds in (sample.exchange_s, sample.compute_s)):
            return self._decision
        constants = self._constants
        budget_s = constants.share * self._compute.update(sample.compute_s)
        fixed_s, bytes_per_s = self._fit(sample)
        self._price(sample)
        congested = sample.exchange_s > budget_s
        wanted = max(0.0, budget_s - fixed_s) * bytes_per_s / self._unit_bytes
        change = wanted / self._decision.ratio
        if self._fixed_s is None:
            change = min(change, 1 / constants.probe) if congested else max(change, constants.probe)
        change = min(max(change, constants.change[0]), constants.change[1])
        ratio = min(max(change * self._decision.ratio, constants.floor), constants.ceiling)
        self._decision = Decision(ratio, 8 * bytes_per_s, fixed_s, bytes_per_s * fixed_s, congested)
        return self._decision

    def _fit(self, sample: Sample) -> tuple[float, float]:
        """Return t0 and B in bytes/s."""
        constants = self._constants
        size, seconds = sample.bytes_sent, sample.exchange_s
        if self._recent:
            last_size, last_seconds = self._recent[-1]
            if max(size, last_size) >= constants.lever * min(size, last_size):
                self._fixed_s = seconds - size * (seconds - last_seconds) / (size - last_size)
        self._recent.append((size, seconds))
        shortest_s = self._shortest.update(sample.now_s, seconds)
        fixed_s = min(max(self._fixed_s or 0.0, 0.0), constants.largest_fixed * shortest_s)
        return fixed_s, statistics.median(size / (seconds - fixed_s) for size, seconds in self._recent)

    def _price(self, sample: Sample) -> None:
        """Learn what a unit of ratio costs; an exchange that went dense does not tell, as its bytes do not follow the ratio."""
        unit_bytes = sample.bytes_sent / max(sample.ratio, self._constants.floor)
        # a dense ring sends the gradient at least once; a sparse exchange that sends more than that shows by its price
        if sample.bytes_sent < sample.dense_bytes or unit_bytes > self._unit_bytes:
            self._unit_bytes = unit_bytes
