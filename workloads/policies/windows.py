"""Summaries of the last samples: windowed extremes in constant time, and a short median that a hiccup does not move."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable


class WindowedExtreme:
    """The largest (or smallest) of the samples that are among the last few or were seen in the last seconds, whichever are more."""

    def __init__(self, pick: Callable[[float, float], float], window_s: float, window_samples: int) -> None:
        self._pick, self._window_s, self._window_samples = pick, window_s, window_samples  # pick: max or min
        self._entries: deque[tuple[int, float, float]] = deque()  # (number, now_s, value); the front is the extreme
        self._count = 0

    def update(self, now_s: float, value: float) -> float:
        """Add a sample and return the window's extreme."""
        while self._entries and self._pick(self._entries[-1][2], value) == value:
            self._entries.pop()  # older and no better: can never be the extreme again
        self._entries.append((self._count, now_s, value))
        while self._entries[0][0] <= self._count - self._window_samples and self._entries[0][1] < now_s - self._window_s:
            self._entries.popleft()
        self._count += 1
        return self._entries[0][2]


class RecentMedian:
    """The median of the last few samples."""

    def __init__(self, samples: int) -> None:
        self._values: deque[float] = deque(maxlen=samples)

    def update(self, value: float) -> float:
        """Add a sample and return the median."""
        self._values.append(value)
        return statistics.median(self._values)
