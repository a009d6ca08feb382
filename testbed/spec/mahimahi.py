"""Turn Mahimahi's delivery opportunities into rates: coarse bins, divided where a window of a second would go astray. Pure.

Over any second the rates let pass what the trace does, within 5 % and a packet, unless the trace bursts within the finest bins
at either end of that second: then the difference is at most what those two carry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

PACKET_BITS = 1500 * 8
WINDOW_MS = 1000
TOLERANCE = 0.03  # of the packets of a window; 5 % is promised, and the network needs some of it
FINEST_MS = 10  # a change takes about as long


def rates(times_ms: Sequence[int], bin_ms: int = 100) -> list[tuple[float, float]]:
    """Return (time in seconds, rate in bit/s) for one round of the trace, equal neighbours joined; 0 where no packet may pass."""
    period_ms = times_ms[-1]
    passed = _passed(times_ms)
    edges = [edge for edge in range(0, period_ms, bin_ms) if edge == 0 or period_ms - edge >= FINEST_MS] + [period_ms]
    while new := _divisions(passed, edges):
        edges = sorted({*edges, *new})
    steps: list[tuple[float, float]] = []
    for start, end in pairwise(edges):
        rate_bps = float(passed[end] - passed[start]) * PACKET_BITS / ((end - start) / 1000)
        if not steps or steps[-1][1] != rate_bps:
            steps.append((start / 1000, rate_bps))
    return steps


def payable(steps: list[tuple[float, float]], period_s: float) -> list[tuple[float, float]]:
    """Return the steps as a token bucket keeps to them.

    It sends a packet first and then waits until that is paid for, at a rate that may have gone up long ago. So where a step has so few
    packets that its last one would be paid for far into the next step, it lets some more through: as many as that wait will cost.
    """
    found: list[tuple[float, float]] = []
    next_s, next_bps = steps[0][0] + period_s, steps[0][1]
    for start_s, rate_bps in reversed(steps):
        # At x packets a second (next_s - start_s) * x of them pass, and a wait of 1 / (2 x) on average costs as many at the next rate.
        least_bps = math.sqrt(PACKET_BITS * next_bps / (2 * (next_s - start_s)))
        next_s, next_bps = start_s, max(rate_bps, min(least_bps, next_bps))
        found.append((next_s, next_bps))
    return found[::-1]


def _passed(times_ms: Sequence[int]) -> Any:
    """Return how many packets have passed at the end of each millisecond of a round, from 0."""
    ends = np.maximum(np.asarray(times_ms), 1)  # what may pass at 0 belongs to the first millisecond
    return np.concatenate(([0], np.cumsum(np.bincount(ends - 1, minlength=times_ms[-1]))))


def _divisions(passed: Any, edges: list[int]) -> list[int]:
    """Return where to divide the bins at either end of the windows that differ too much from the trace."""
    period_ms = edges[-1]
    ahead = np.interp(np.arange(period_ms + 1), edges, passed[edges]) - passed  # of the trace, in packets; 0 at the edges
    starts = np.arange(period_ms)
    rounds, ends = np.divmod(starts + WINDOW_MS, period_ms)
    packets = rounds * passed[-1] + passed[ends] - passed[starts]
    astray = np.abs(ahead[ends] - ahead[starts]) > TOLERANCE * packets + 1  # a packet is not divided
    blamed = np.unique(np.searchsorted(edges, np.concatenate((starts[astray], ends[astray])), side="right") - 1)
    divisions = []
    for start, end in ((edges[i], edges[i + 1]) for i in blamed):
        if end - start >= 2 * FINEST_MS:
            inner = slice(start + FINEST_MS, end - FINEST_MS + 1)
            divisions.append(inner.start + int(np.argmax(np.abs(ahead[inner]))))
    return divisions
