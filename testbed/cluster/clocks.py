"""Rows of another machine on rank 0's clock. Pure.

Every machine's monotonic clock begins somewhere else. But all ranks leave the barrier before their first measured step together, and
each notes when: that moment sets the clocks, to within the time the barrier's last message takes. From there on they drift apart, commonly
by less than 0.1 s in an hour.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]

TOGETHER = ("measured_start", "joined")  # moments all ranks share, the best first; the second is for runs that failed before


def offset_s(own: Iterable[Row], reference: Iterable[Row]) -> float | None:
    """Return what to add to a clock to have the reference's, by the events of both; None if they share no moment."""
    mine, theirs = ({row["kind"]: row["mono_s"] for row in rows} for rows in (own, reference))
    return next((theirs[kind] - mine[kind] for kind in TOGETHER if kind in mine and kind in theirs), None)


def moved(rows: Iterable[Row], by_s: float) -> str:
    """Return JSON lines of rows with their times moved."""
    return "".join(json.dumps({**row, "mono_s": row["mono_s"] + by_s}, separators=(",", ":")) + "\n" for row in rows)
