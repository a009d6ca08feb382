"""The bottleneck's queue while a run trained: its samples, its busiest direction, and how long a packet waited in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import frames, metrics_time
from analysis.load import Run, dig
from analysis.metrics import NAN


@dataclass(frozen=True)
class Direction:
    """One way over a bottleneck link."""

    link: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"

    def of(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return the samples of this direction."""
        return samples[(samples["link"] == self.link) & (samples["source"] == self.source) & (samples["target"] == self.target)]


@dataclass(frozen=True)
class Waits:
    """How long what came to the busiest direction's queue had to wait for what was there before it."""

    mean_s: float = NAN
    p95_s: float = NAN


def bottlenecks(run: Run) -> list[dict[str, Any]]:
    """Return the links of the run's network that are marked as bottlenecks."""
    links = dig(run.manifest, "network", "links")
    return [link for link in links if isinstance(link, dict) and link.get("bottleneck")] if isinstance(links, list) else []


def training_samples(run: Run) -> pd.DataFrame:
    """Return the samples of the bottlenecks from the first step to the end of the last."""
    return _training(run.links, _names(run), metrics_time.end_s(run.steps))


def directions(samples: Iterable[pd.DataFrame]) -> list[Direction]:
    """Return the busiest direction of the bottlenecks and, if that held anything, the way back; nothing without samples.

    Busiest is what held most for longest, in all runs together; each frame has the samples of one. Table and figures choose by this.
    """
    held: dict[Direction, float] = defaultdict(float)
    for frame in samples:
        for names, mine in frame.groupby(["link", "source", "target"], sort=False, observed=True):
            held[Direction(*map(str, names))] += _held_byte_s(mine)
    if not held:
        return []
    busiest = max(held, key=lambda way: held[way])  # of equals the one that was sampled first: as its link is written
    back = Direction(busiest.link, busiest.target, busiest.source)
    return [busiest, back] if held[back] > 0 else [busiest]


def waits_s(samples: pd.DataFrame) -> pd.Series:
    """Return how long the backlog of each sample takes to leave at the rate of that moment."""
    return 8 * samples["backlog_bytes"] / samples["rate_bps"].where(samples["rate_bps"] > 0)


def waits(run: Run) -> Waits:
    """Return the waits of a run's busiest direction; samples are many, so they are read once while their file stays the same."""
    path, names, end_s = run.folder / "links.parquet", _names(run), metrics_time.end_s(run.steps)
    if run.complete and path.is_file():
        return _waits_in(path, path.stat().st_mtime_ns, names, end_s)
    return busiest_waits(_training(run.links, names, end_s))


def busiest_waits(samples: pd.DataFrame) -> Waits:
    """Return the waits of the direction with most backlog."""
    ways = directions([samples])
    taken_s = waits_s(ways[0].of(samples) if ways else samples).dropna()
    return Waits(float(taken_s.mean()), float(taken_s.quantile(0.95))) if len(taken_s) else Waits()


def _held_byte_s(samples: pd.DataFrame) -> float:
    """Return one direction's backlog times how long it was there: a sum over samples would count what was sampled more often twice."""
    ordered = samples.sort_values("t_s")
    lasted_s = ordered["t_s"].diff().bfill().fillna(1.0)  # since the sample before; a single one has nothing to be weighed against
    return float((ordered["backlog_bytes"] * lasted_s).sum())


@lru_cache(maxsize=4096)
def _waits_in(path: Path, stamp_ns: int, names: frozenset[str], end_s: float) -> Waits:
    links, _ = frames.read_parquet(path)  # what is wrong with it is said by whoever draws it
    return busiest_waits(_training(links, names, end_s))


def _names(run: Run) -> frozenset[str]:
    return frozenset(link["name"] for link in bottlenecks(run))


def _training(links: pd.DataFrame, names: frozenset[str], end_s: float) -> pd.DataFrame:
    inside = (links["t_s"] >= 0) & (links["t_s"] <= end_s)
    chosen = links[links["link"].isin(names) & inside & links["backlog_bytes"].notna()]
    at = ["t_s", "link", "source", "target"]
    if not chosen.duplicated(at).any():
        return chosen
    # a direction with classes has a queue for each, read at the same moment: what waits is their sum
    return chosen.groupby(at, as_index=False).agg({"backlog_bytes": "sum", "queue_bytes": "sum", "sent_bytes": "sum", "rate_bps": "max"})
