"""The bottleneck's queue while a run trained: its samples, its busiest direction, and how long a packet waited in it."""

from __future__ import annotations

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


def directions(samples: pd.DataFrame, runs: Iterable[Run]) -> list[Direction]:
    """Return the two directions of the bottleneck with most backlog, the way its link is written first; the second if it held anything."""
    held = samples.groupby("link")["backlog_bytes"].sum()
    name = str(held.idxmax())
    link = next(link for run in runs for link in bottlenecks(run) if link["name"] == name)
    there, back = Direction(name, link["a"], link["b"]), Direction(name, link["b"], link["a"])
    peaks = {way: way.of(samples)["backlog_bytes"].max() for way in (there, back)}
    if not peaks[there] > 0:
        there, back = back, there
    return [there, back] if peaks[back] > 0 else [there]


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
    ways = samples.groupby(["link", "source", "target"])
    if not len(ways):
        return Waits()
    taken_s = waits_s(ways.get_group(ways["backlog_bytes"].sum().idxmax())).dropna()
    return Waits(float(taken_s.mean()), float(taken_s.quantile(0.95))) if len(taken_s) else Waits()


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
