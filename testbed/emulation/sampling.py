"""How often queues are looked at, and what their counters say of the last moments. Pure arithmetic."""

from __future__ import annotations

import math
from collections import deque

FINE_INTERVAL_S = 0.005
FINEST_INTERVAL_S = 0.001
COARSE_INTERVAL_S = 0.02
WINDOW_S = 0.1  # over which a queue's rate is told


def interval_s(bottleneck: bool, rate_bps: float, queue_bytes: int) -> float:
    """Choose how often to sample a queue: a full one must not be able to empty within half an interval's slack."""
    if not bottleneck:
        return COARSE_INTERVAL_S
    drains_in_s = queue_bytes * 8 / rate_bps
    return max(FINEST_INTERVAL_S, min(FINE_INTERVAL_S, drains_in_s / 3))


def next_tick(due_s: float, interval_s: float, now_s: float) -> float:
    """Return when to sample again: on the grid of the ticks so far, those that were missed left out."""
    missed = math.floor((now_s - due_s) / interval_s)
    return due_s + (max(0, missed) + 1) * interval_s


class RecentRates:
    """A queue's rates of sending and dropping over about the last WINDOW_S."""

    def __init__(self) -> None:
        """Begin without a reading."""
        self._points: deque[tuple[float, int, int]] = deque()  # (when, bytes sent, packets dropped), the newest last
        self.sent_bps = 0.0
        self.drops_per_s = 0.0

    def add(self, mono_s: float, sent_bytes: int, dropped_packets: int) -> None:
        """Add a reading of the counters."""
        points = self._points
        if points and (sent_bytes < points[-1][1] or dropped_packets < points[-1][2]):  # the queue was made anew
            points.clear()
        points.append((mono_s, sent_bytes, dropped_packets))
        while len(points) > 2 and points[1][0] <= mono_s - WINDOW_S:
            points.popleft()
        began_s, sent_before, dropped_before = points[0]
        if mono_s > began_s:
            self.sent_bps = 8 * (sent_bytes - sent_before) / (mono_s - began_s)
            self.drops_per_s = (dropped_packets - dropped_before) / (mono_s - began_s)
