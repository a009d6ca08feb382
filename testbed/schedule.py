"""What a sweep has done and has yet to do, in words and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.attempts import Standing
from testbed.forecast import Duration, Forecast
from testbed.spec import Experiment
from testbed.sweep import Run, label_values


@dataclass(frozen=True)
class Schedule:
    """An experiment's runs in their order, how each stands, and how long the rest will take."""

    experiment: Experiment
    folder: str
    runs: Sequence[Run]
    standings: Mapping[str, Standing]
    forecast: Forecast

    def in_state(self, state: str) -> list[Run]:
        """Return the runs that are `done`, `due` or `left`."""
        return [run for run in self.runs if self.standings[run.slug].state == state]

    @property
    def duration(self) -> Duration:
        """Return how long the runs that are due will take."""
        return self.forecast.of_all(self.in_state("due"))

    def after(self, number: int) -> Duration:
        """Return how long those behind the first `number` runs will take."""
        return self.forecast.of_all(run for run in self.runs[number:] if self.standings[run.slug].state == "due")

    def sentences(self) -> list[str]:
        """Say the plan."""
        experiment = self.experiment
        sizes = [_count(self.cells, "cell"), _count(len(experiment.schemes), "scheme"), _count(experiment.repeats, "repeat")]
        lines = [f"{experiment.name}: {' x '.join(sizes)} = {_count(len(self.runs), 'run')}, into {self.folder}"]
        lines += [f"  {field}: {', '.join(label_values(values))}" for field, values in experiment.sweep.items()]
        lines.append(f"  schemes: {', '.join(dict.fromkeys(run.scheme.slug for run in self.runs))}")
        due, left = self.in_state("due"), self.in_state("left")
        lines.append(f"{len(self.in_state('done'))} done, {len(due)} to do" + (f", {len(left)} left" if left else ""))
        if left:
            lines.append(f"failed twice, and tried again only with --retry: {', '.join(run.slug for run in left)}")
        if due:
            lines.append(f"{self.duration.words()}; {self._basis(due)}")
        return lines

    @property
    def cells(self) -> int:
        """Return how many combinations of the swept fields there are."""
        return len({tuple(run.cell.items()) for run in self.runs})

    def to_json(self) -> dict[str, Any]:
        """Return the plan for machines."""
        duration = self.duration
        return {
            "experiment": self.experiment.name,
            "folder": self.folder,
            "cells": self.cells,
            "schemes": len(self.experiment.schemes),
            "repeats": self.experiment.repeats,
            **{name: len(self.in_state(state)) for name, state in (("done", "done"), ("to_do", "due"), ("left", "left"))},
            "estimated_s": duration.seconds,
            "at_most": duration.at_most,
            "unknown_runs": duration.unknown_runs,
            "measured_runs": self.forecast.measured_runs,
            "runs": [self._row(run) for run in self.runs],
        }

    def _row(self, run: Run) -> dict[str, Any]:
        state, taken = self.standings[run.slug].state, self.forecast.of(run)
        head = {"run": run.slug, "scheme": run.scheme.slug, "cell": run.cell, "repeat": run.repeat, "seed": run.seed}
        return {**head, "state": state, "estimated_s": None if taken.unknown_runs else taken.seconds}

    def _basis(self, due: list[Run]) -> str:
        kinds = dict.fromkeys(run.experiment.workload.kind for run in due)
        beside = " or ".join(dict.fromkeys(f"{self.forecast.overhead_s(kind):.0f} s" for kind in kinds))
        measured = self.forecast.measured_runs
        source = f"as measured in {_count(measured, 'run')}" if measured else "assumed"
        return f"{beside} a run beside its budget, {source}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
