"""How long runs will take: their budgets, and what runs here have cost beside them. Pure, but for a model's size.

A budget of seconds is taken at its word. One of steps or of an accuracy is what another repeat took; else steps of a replay are
predicted as if nothing were compressed, and nothing is said of the rest. Slow steps of a replay's warm-up are predicted likewise.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from testbed.prediction import predicted_step_s
from testbed.sweep import Run

ASSUMED_OVERHEAD_S = 12.0  # boot, verification, warm-up, records: before anything was measured
DENSE = "none"
WARM_UP_STEPS = 2  # at least; a worker warms up for more only where they are short
SLOW_STEP_S = 1.0  # shorter ones are in what is assumed
MOST_DRAWN_STEPS = 200  # by which to tell how slow the slowest worker is


@dataclass(frozen=True)
class Duration:
    """A time to come: what can be told of it, and of how many runs nothing can."""

    seconds: float = 0.0
    unknown_runs: int = 0
    at_most: bool = False

    def __add__(self, other: Duration) -> Duration:
        """Return one after the other."""
        return Duration(self.seconds + other.seconds, self.unknown_runs + other.unknown_runs, self.at_most or other.at_most)

    def words(self) -> str:
        """Say it, as exactly as it is known."""
        if not self.unknown_runs:
            return f"{'at most' if self.at_most else 'about'} {span(self.seconds)}"
        runs = f"{self.unknown_runs} run{'s' * (self.unknown_runs > 1)} of unknown length"
        return f"about {span(self.seconds)} and {runs}" if self.seconds else runs


def span(seconds: float) -> str:
    """Say a time in the two units that matter: 45 s, 12 min, 3 h 05 min, 2 d 04 h."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24:02d} h"


class Forecast:
    """What runs will take, learned from those that have ended."""

    def __init__(self, manifests: Iterable[Mapping[str, Any]] = ()) -> None:
        """Learn from the manifests there are."""
        self._overheads_s: defaultdict[str, list[float]] = defaultdict(list)  # by kind of workload
        self._trained_s: defaultdict[tuple[str, str], list[float]] = defaultdict(list)  # by scheme and cell
        self._dense_step_s: dict[str, float] = {}  # by run: a large sweep asks for it again and again
        for manifest in manifests:
            self.learn(manifest)

    def learn(self, manifest: Mapping[str, Any]) -> None:
        """Take note of a run; one that is not complete teaches nothing."""
        if manifest.get("status") != "complete":
            return
        try:
            train_s = float(manifest["workers"][0]["train_s"])
            wall_s = (datetime.fromisoformat(manifest["finished"]) - datetime.fromisoformat(manifest["started"])).total_seconds()
            train_s *= float(manifest.get("dilation", 1.0))
            kind, key = manifest["spec"]["workload"]["kind"], _key(manifest["scheme"], manifest["cell"])
        except (KeyError, IndexError, TypeError, ValueError):
            return
        self._overheads_s[kind].append(max(0.0, wall_s - train_s))
        self._trained_s[key].append(train_s)

    @property
    def measured_runs(self) -> int:
        """Tell how many runs this rests on."""
        return sum(map(len, self._overheads_s.values()))

    def overhead_s(self, kind: str) -> float:
        """Return what a run takes beside its budget: the median of runs of the same kind of workload, else of all, else what is assumed."""
        known = self._overheads_s.get(kind) or [each for some in self._overheads_s.values() for each in some]
        return statistics.median(known) if known else ASSUMED_OVERHEAD_S

    def of(self, run: Run) -> Duration:
        """Return what a run will take."""
        workload = run.experiment.workload.to_job()
        training = self._training(run, workload)
        if training is None:
            return Duration(unknown_runs=1)
        return training + Duration(self.overhead_s(workload["kind"])) + self._warm_up(run, workload)

    def of_all(self, runs: Iterable[Run]) -> Duration:
        """Return what several runs will take, one after the other."""
        return sum(map(self.of, runs), Duration())

    def _training(self, run: Run, workload: dict[str, Any]) -> Duration | None:
        budget = workload["budget"]
        dilation = run.experiment.dilation  # a forecast is in the time of those who wait for it
        limit_s, steps = budget["seconds"] and budget["seconds"] * dilation, budget["steps"]
        if limit_s is not None and steps is None and budget["accuracy"] is None:
            return Duration(limit_s)
        before = self._trained_s.get(_key(run.scheme.slug, run.cell))
        if before:
            return Duration(min(statistics.median(before), limit_s or float("inf")))
        known = [] if limit_s is None else [limit_s]
        if steps is not None and _predictable(run, workload):
            known.append(steps * self._dense_s(run))
        exact = run.scheme.slug == DENSE and budget["accuracy"] is None and _predictable(run, workload)
        return Duration(min(known), at_most=not exact) if known else None

    def _warm_up(self, run: Run, workload: dict[str, Any]) -> Duration:
        """Return what the steps before the measured ones take, unless it is in what was learned of other runs."""
        if workload["kind"] in self._overheads_s or not _predictable(run, workload) or self._dense_s(run) < SLOW_STEP_S:
            return Duration()
        return Duration(WARM_UP_STEPS * self._dense_s(run), at_most=run.scheme.slug != DENSE)

    def _dense_s(self, run: Run) -> float:
        """Return how long a step without compression will take those who wait for it."""
        if run.slug not in self._dense_step_s:
            self._dense_step_s[run.slug] = dense_step_s(run)
        return self._dense_step_s[run.slug] * run.experiment.dilation


def _predictable(run: Run, workload: dict[str, Any]) -> bool:
    """Tell whether steps have a length by plan: those of real machines have a rate that nobody knows."""
    return workload["kind"] == "replay" and run.experiment.backend != "cluster"


def dense_step_s(run: Run) -> float:
    """Predict a step of a replay that compresses nothing."""
    from workloads.exchange.plan import plan_allreduce

    experiment = run.experiment
    workload, network = experiment.workload.to_job(), experiment.network(run.seed)
    plan = plan_allreduce(_gradient_bytes(workload["model"]), len(network.hosts))
    sent = [float(plan.bytes_sent)] * len(network.hosts)
    compute_s = workload["compute_s"] * slowest(run)
    return predicted_step_s(network, experiment.topology.resolved_mtu(), compute_s, "ring", sent, plan.rounds)


def slowest(run: Run) -> float:
    """Return how many times as long compute takes on the worker that all others wait for, the mean over steps."""
    from workloads.pace import Slowdown, Slowdowns

    ranks = range(run.experiment.topology.workers)
    workers = [Slowdowns([Slowdown(**given) for given in run.experiment.slowdowns(rank)], run.seed, rank) for rank in ranks]
    return statistics.mean(max(worker.of(step) for worker in workers) for step in range(MOST_DRAWN_STEPS))


@cache
def _gradient_bytes(model: str) -> int:
    from workloads.models.sizes import layer_sizes

    return 4 * sum(layer_sizes(model))


def _key(scheme: str, cell: Mapping[str, Any]) -> tuple[str, str]:
    return scheme, json.dumps(cell, sort_keys=True, default=str)
