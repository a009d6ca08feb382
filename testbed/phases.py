"""Where a run's time went: its phases one after the other, from the moments that were noted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# What a phase ends with: an event, of every worker where workers tell it.
_ENDS = {
    "boot": "booted",
    "verification": "verified",
    "first_step": "first_step",
    "warm_up": "warmup_done",
    "first_evaluation": "measured_start",
    "measured": "measured_end",
}


@dataclass(frozen=True)
class Moments:
    """When the runner began a run, had its sandbox gone, had judged it and had written its tables, by the monotonic clock."""

    began_s: float
    ended_s: float
    judged_s: float
    written_s: float


def phases_s(events: Iterable[Mapping[str, Any]], evaluations: Iterable[Mapping[str, Any]], moments: Moments) -> dict[str, float]:
    """Return how long each phase took; they add up to the whole. What was not noted is in the phase after it."""
    events = list(events)
    ends = {name: max((row["mono_s"] for row in events if row["kind"] == kind), default=None) for name, kind in _ENDS.items()}
    ends["last_evaluation"] = max((row["mono_s"] for row in evaluations), default=None)
    ends |= {"ending": moments.ended_s, "judging": moments.judged_s, "writing": moments.written_s}
    found, before_s = {}, moments.began_s
    for name, end_s in ends.items():
        if end_s is not None and end_s >= before_s:
            found[name], before_s = end_s - before_s, end_s
    return found
