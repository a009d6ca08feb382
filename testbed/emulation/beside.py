"""What background traffic leaves to judge: whose counters hold more than the schemes' bytes, and which losses were not theirs. Pure.

`background` is the table of docs/results.md, with `mono_s` as time; empty for a run without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

TAIL_S = 0.5  # after the last bytes of a flow: acknowledgements, and what ends its connections
MOST_LATE_S = 0.5
SURELY_LOST = 0.95  # share of the datagrams found missing: they are noticed a moment after they were lost


@dataclass(frozen=True)
class Punctuality:
    """Whether the flows were what was asked for."""

    late_s: float  # the most
    broke_off: tuple[str, ...]  # in words

    @property
    def ok(self) -> bool:
        """Tell whether they were."""
        return self.late_s <= MOST_LATE_S and not self.broke_off

    @property
    def text(self) -> str:
        """Say what is wrong."""
        return "; ".join(self.broke_off) or f"background traffic began or ended {self.late_s:.1f} s late"


def on_own_host(steps: pd.DataFrame, background: pd.DataFrame, hosts: Sequence[str], dilation: float = 1.0) -> pd.Series:
    """Tell of each step whether background traffic went from or to its worker's host meanwhile; steps last so many times `step_s`."""
    beside = pd.Series(False, index=steps.index)
    if background.empty:
        return beside
    for _, rows in background.groupby("entry"):
        start_s, end_s = rows["mono_s"].min(), (rows["mono_s"] + rows["seconds"]).max() + TAIL_S
        ends = {rows["source"].iloc[0], rows["target"].iloc[0]}
        ranks = [rank for rank, host in enumerate(hosts) if host in ends]
        meanwhile = (steps["mono_s"] < end_s) & (steps["mono_s"] + steps["step_s"] * dilation > start_s)
        beside |= steps["rank"].isin(ranks) & meanwhile
    return beside


def retransmits(background: pd.DataFrame) -> float:
    """Return how many segments background flows sent again."""
    return 0.0 if background.empty else float(background["retransmits"].sum())


def datagrams_lost(background: pd.DataFrame, start_s: float, end_s: float) -> float:
    """Return how many UDP datagrams were surely lost between two moments: frames that no TCP needs to send again."""
    if background.empty:
        return 0.0
    within = (background["mono_s"] >= start_s) & (background["mono_s"] + background["seconds"] <= end_s)
    return SURELY_LOST * float(background.loc[within, "lost_packets"].sum())


def punctuality(events: pd.DataFrame) -> Punctuality | None:
    """Judge the flows by the run's events; None for a run without background traffic."""
    if events.empty:
        return None
    told = events[events["kind"].isin(("background_start", "background_end"))]
    if told.empty:
        return None
    late_s = max(float(data["late_s"]) for data in told["data"])
    return Punctuality(late_s, tuple(events.loc[events["kind"] == "background_failed", "text"]))
