"""What the report's viewer draws: every run over its time, in few windows, so that a hundred runs stay small.

Runs are grouped as they may be compared: the same cell, workload and repeat. One that stands apart is a group of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis import metrics_time, queues, words
from analysis.load import Results, Run
from analysis.metrics_time import Numbers
from analysis.report.runs import ROUTINE
from analysis.style import SchemeStyle

WINDOWS = 150  # of each run: finer than a phone shows, and a hundred runs stay under a megabyte
LEAST_WINDOW_S = 0.1  # the delivered rate needs some samples
MOST_EVENTS = 40
MOST_CHANGES = 150  # of a rate: a trace may have thousands


@dataclass(frozen=True)
class Group:
    """Runs side by side."""

    title: str
    runs: list[dict[str, Any]]  # ready for JSON


def groups(results: Results, styles: dict[str, SchemeStyle]) -> list[Group]:
    """Return the groups that have anything to show, in planned order."""
    found: dict[tuple[str, str, int, str], list[tuple[Run, dict[str, Any]]]] = {}
    for run in results.runs:
        if series := run.once("series", series_of):
            look = {"label": styles[run.scheme].label, "colour": styles[run.scheme].colour, "run": run.slug, "valid": run.valid}
            alone = f"{run.slug} alone" if run.slug in results.apart else ""
            found.setdefault((run.cell_key, run.workload, run.repeat, alone), []).append((run, look | series))
    repeats = len({repeat for _, _, repeat, _ in found}) > 1
    made = []
    for (_, workload, repeat, alone), members in found.items():
        cell = words.cell_words(members[0][0].cell)
        parts = [cell, workload if len(results.workloads) > 1 else "", f"repeat {repeat}" if repeats else "", alone]
        made.append(Group(", ".join(part for part in parts if part) or results.name, [series for _, series in members]))
    return made


def series_of(run: Run) -> dict[str, Any] | None:
    """Return what a run did over its time; None if it did not make a step. Reads every table."""
    last_s = metrics_time.end_s(run.steps)
    events, evals, samples = _events(run, last_s), run.evals, queues.training_samples(run)
    mine = queues.busiest(samples)
    run.once("waits", lambda _: queues.summed_up(mine, run.steps))  # while they are here
    if not last_s > 0:
        return None
    edges_s = np.linspace(0.0, last_s, max(1, min(WINDOWS, int(last_s / LEAST_WINDOW_S))) + 1)
    found: dict[str, Any] = {
        "end": _round(last_s),
        "throughput": _list(metrics_time.throughput_over_time(run.steps, edges_s)),
        "ratio": _list(_ratio(run.steps, edges_s)),
        "accuracy": [[_round(t), _round(a)] for t, a in evals[["t_s", "accuracy"]].dropna().to_numpy()],
        "events": events,
    }
    if len(mine):
        mine = mine.sort_values("t_s")
        times_s, rates_bps = metrics_time.configured_bps(mine)
        found["sent"] = _list(metrics_time.delivered_bps(mine, edges_s) / 1e6)
        found["backlog"] = _list(_largest(mine, edges_s) / 1e3)
        found["rate"] = [[_round(max(0.0, t)), _round(r / 1e6)] for t, r in zip(times_s, rates_bps, strict=True)][:MOST_CHANGES]
    return found


def _ratio(steps: pd.DataFrame, edges_s: Numbers) -> Numbers:
    """Return the mean ratio of the steps that began in each window; in a window without any, that of the one before."""
    clock = steps[(steps["rank"] == 0) & steps["ratio"].notna()]
    places = _places(clock["t_s"], edges_s)
    return clock["ratio"].groupby(places).mean().reindex(range(len(edges_s) - 1)).ffill().to_numpy(dtype=float)


def _largest(samples: pd.DataFrame, edges_s: Numbers) -> Numbers:
    """Return the largest backlog in each window, so that no spike is lost."""
    places = _places(samples["t_s"], edges_s)
    return samples["backlog_bytes"].groupby(places).max().reindex(range(len(edges_s) - 1)).to_numpy(dtype=float)


def _places(times_s: pd.Series, edges_s: Numbers) -> Numbers:
    return np.clip(np.searchsorted(edges_s, times_s.to_numpy(), side="right") - 1, 0, len(edges_s) - 2)


def _events(run: Run, last_s: float) -> list[list[Any]]:
    events = run.events
    inside = events[(events["t_s"] > 0) & (events["t_s"] < last_s) & ~events["kind"].isin(ROUTINE)]
    return [[_round(t_s), str(text)] for t_s, text in zip(inside["t_s"], inside["text"], strict=True)][:MOST_EVENTS]


def _list(values: Numbers) -> list[float | None]:
    return [_round(value) for value in values]


def _round(value: float) -> float | None:
    """Keep four digits: finer than a pixel. Null where nothing is known."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() else rounded
