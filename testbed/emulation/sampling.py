"""How often queues are looked at, and what their counters say of the last moments. Pure arithmetic."""

from __future__ import annotations

import math
from collections import deque

from topologies import Network
from topologies.load import ring_hops

FINE_INTERVAL_S = 0.005
FINEST_INTERVAL_S = 0.001
COARSE_INTERVAL_S = 0.02
MOST_FINE_HZ = 2000.0  # readings a second of all bottlenecks: about 5 % of a core
WINDOW_S = 0.1  # over which a queue's rate is told


def intervals_s(network: Network) -> dict[str, float]:
    """Choose how often to sample the queues of each shaped direction, by its name.

    Finely where fidelity is judged: on the bottlenecks that the workers' ring crosses. Of many, less finely, so that they cost no more
    in sum: the sampler goes before the workers it looks at.
    """
    shaped = {direction.name: direction for direction in network.directions() if direction.spec.queues()}
    crossed = {direction.name for path in ring_hops(network) for direction in path} if network.routes else set(shaped)
    fine = {
        name: min(fine_interval_s(queue.max_bps, queue.queue_bytes or 0) for queue in direction.spec.queues())
        for name, direction in shaped.items()
        if direction.bottleneck and name in crossed
    }
    reads_hz = sum(len(shaped[name].spec.queues()) / interval_s for name, interval_s in fine.items())
    stretch = max(1.0, reads_hz / MOST_FINE_HZ)
    return dict.fromkeys(shaped, COARSE_INTERVAL_S) | {name: interval_s * stretch for name, interval_s in fine.items()}


def fine_interval_s(rate_bps: float, queue_bytes: int) -> float:
    """Return how often is often enough for a queue: a full one must not be able to empty within half an interval's slack."""
    drains_in_s = queue_bytes * 8 / rate_bps
    return max(FINEST_INTERVAL_S, min(FINE_INTERVAL_S, drains_in_s / 3))


def next_tick(due_s: float, interval_s: float, now_s: float) -> float:
    """Return when to sample again: on the grid of the ticks so far, those that were missed left out."""
    missed = math.floor((now_s - due_s) / interval_s)
    return due_s + (max(0, missed) + 1) * interval_s


class RecentRates:
    """A queue's rates of sending and dropping over about the last `window_s`."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        """Begin without a reading."""
        self._window_s = window_s
        self._points: deque[tuple[float, int, int]] = deque()  # (when, bytes sent, packets dropped), the newest last
        self.sent_bps = 0.0
        self.drops_per_s = 0.0

    def add(self, mono_s: float, sent_bytes: int, dropped_packets: int) -> None:
        """Add a reading of the counters."""
        points = self._points
        if points and (sent_bytes < points[-1][1] or dropped_packets < points[-1][2]):  # the queue was made anew
            points.clear()
        points.append((mono_s, sent_bytes, dropped_packets))
        while len(points) > 2 and points[1][0] <= mono_s - self._window_s:
            points.popleft()
        began_s, sent_before, dropped_before = points[0]
        if mono_s > began_s:
            self.sent_bps = 8 * (sent_bytes - sent_before) / (mono_s - began_s)
            self.drops_per_s = (dropped_packets - dropped_before) / (mono_s - began_s)
