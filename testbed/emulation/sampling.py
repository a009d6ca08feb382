"""How often a queue is looked at."""

from __future__ import annotations

FINE_INTERVAL_S = 0.005
FINEST_INTERVAL_S = 0.001
COARSE_INTERVAL_S = 0.1


def interval_s(bottleneck: bool, rate_bps: float, queue_bytes: int) -> float:
    """Choose how often to sample a queue: a full one must not be able to empty within half an interval's slack."""
    if not bottleneck:
        return COARSE_INTERVAL_S
    drains_in_s = queue_bytes * 8 / rate_bps
    return max(FINEST_INTERVAL_S, min(FINE_INTERVAL_S, drains_in_s / 3))
