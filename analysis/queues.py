"""The bottleneck's queue while a run trained: its samples, its busiest direction, and how long a packet waited in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import metrics_time
from analysis.load import Run, dig
from analysis.metrics import NAN, Numbers

ENDS = ["link", "source", "target"]  # of a direction
Places = npt.NDArray[np.intp]


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
    """How long what came to the busiest direction's queue during steps had to wait for what was there before it."""

    mean_s: float = NAN
    p95_s: float = NAN


def bottlenecks(run: Run) -> list[dict[str, Any]]:
    """Return the links of the run's network that are marked as bottlenecks."""
    links = dig(run.manifest, "network", "links")
    return [link for link in links if isinstance(link, dict) and link.get("bottleneck")] if isinstance(links, list) else []


def training_samples(run: Run) -> pd.DataFrame:
    """Return the samples of the bottlenecks from the first step to the end of the last, evaluations between steps included."""
    return _training(run.links, [link["name"] for link in bottlenecks(run)], metrics_time.end_s(run.steps))


def within_steps(samples: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the samples taken within a step of worker 0.

    Queues are empty while it evaluates: with those samples a scheme that evaluates often would seem to hold less.
    """
    begins_s, ends_s = metrics_time.step_times_s(steps)
    if not len(begins_s):
        return samples.iloc[:0]
    t_s = samples["t_s"].to_numpy()
    places = np.searchsorted(begins_s, t_s, side="right") - 1
    return samples[(places >= 0) & (t_s <= ends_s[places])]


def directions(samples: Iterable[pd.DataFrame]) -> list[Direction]:
    """Return the busiest direction of the bottlenecks and, if that held anything, the way back; nothing without samples.

    Busiest is what held most for longest, in all runs together; each frame has the samples of one. Table and figures choose by this.
    """
    held: dict[Direction, float] = defaultdict(float)
    for frame in samples:
        for way, places in _by_direction(frame):
            held[way] += _held_byte_s(frame["t_s"].to_numpy()[places], frame["backlog_bytes"].to_numpy()[places])
    if not held:
        return []
    busiest = max(held, key=lambda way: held[way])  # of equals the one that was sampled first: as its link is written
    back = Direction(busiest.link, busiest.target, busiest.source)
    return [busiest, back] if held[back] > 0 else [busiest]


def waits_s(samples: pd.DataFrame) -> pd.Series:
    """Return how long the backlog of each sample takes to leave at the rate of that moment."""
    return 8 * samples["backlog_bytes"] / samples["rate_bps"].where(samples["rate_bps"] > 0)


def waits(run: Run) -> Waits:
    """Return the waits of a run's busiest direction; samples are many, so they are read once."""
    return run.once("waits", lambda run: summed_up(busiest(training_samples(run)), run.steps))


def busiest(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of the direction with most backlog."""
    ways = directions([samples])
    return ways[0].of(samples) if ways else samples


def summed_up(samples: pd.DataFrame, steps: pd.DataFrame) -> Waits:
    """Return the waits in one direction during steps."""
    taken_s = waits_s(within_steps(samples, steps)).dropna()
    return Waits(float(taken_s.mean()), float(taken_s.quantile(0.95))) if len(taken_s) else Waits()


def _by_direction(samples: pd.DataFrame) -> Iterator[tuple[Direction, Places]]:
    """Yield each direction, as it was sampled first, and the places of its samples; to part the frame itself takes four times as long."""
    codes = np.zeros(len(samples), dtype=np.int64)
    for end in ENDS:
        mine, names = pd.factorize(samples[end])
        codes = codes * len(names) + mine
    _, firsts, parts = np.unique(codes, return_index=True, return_inverse=True)
    for part in np.argsort(firsts):
        yield Direction(*(str(samples[end].iloc[firsts[part]]) for end in ENDS)), np.flatnonzero(parts == part)


def _held_byte_s(t_s: Numbers, held_bytes: Numbers) -> float:
    """Return one direction's backlog times how long it was there: a sum over samples would count what was sampled more often twice."""
    order = np.argsort(t_s, kind="stable")
    t_s, held_bytes = t_s[order], held_bytes[order]
    if len(t_s) < 2:
        return float(held_bytes.sum())  # a single one has nothing to be weighed against
    since_s = np.diff(t_s)  # the sample before; the first counts as long as the second
    return float(held_bytes[0] * since_s[0] + (held_bytes[1:] * since_s).sum())


def _training(links: pd.DataFrame, names: list[str], end_s: float) -> pd.DataFrame:
    t_s = links["t_s"].to_numpy()
    chosen = links[links["link"].isin(names).to_numpy() & (t_s >= 0) & (t_s <= end_s) & ~np.isnan(links["backlog_bytes"].to_numpy())]
    at = ["t_s", *ENDS]
    if not chosen.duplicated(at).any():
        return chosen
    # a direction with classes has a queue for each, read at the same moment: what waits is their sum
    return chosen.groupby(at, as_index=False).agg({"backlog_bytes": "sum", "queue_bytes": "sum", "sent_bytes": "sum", "rate_bps": "max"})
