"""What claims are measured by: one scheme against another in the same cell, valid runs only, pairs of the same repeat.

Each returns one sample a cell, the median over its repeats; a cell that lacks one of the two schemes has none. Cells are in the order of a
swept rate, and `place` chooses among them, whether or not they have a sample: SLOWEST, FASTEST, or all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np

from analysis import metrics, metrics_time
from analysis.fields import swept_fields
from analysis.load import Run, dig
from analysis.papers.claims import Experiments, Sample
from analysis.words import cell_words

EVERY, SLOWEST, FASTEST = slice(None), slice(1), slice(-1, None)
Compare = Callable[[Run, Run], float]


class Measure(Protocol):
    """Of a study, a scheme against another."""

    def __call__(self, experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
        """Return one sample a cell."""


def faster(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme's throughput exceeds another's."""
    return _compared(experiments, study, scheme, over, place, lambda one, other: _throughput(one) / _throughput(other))


def faster_once_settled(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme's median step is shorter than another's: what remains once a controller has found its way."""
    return _compared(experiments, study, scheme, over, place, lambda one, other: _median_step_s(other) / _median_step_s(one))


def sooner(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme is sooner at an accuracy: the highest that both of a pair reached, at any evaluation."""
    return _compared(experiments, study, scheme, over, place, _time_ratio)


def points_at_equal_steps(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return a scheme's accuracy less another's, in points, after as many steps as the shorter of the two runs has."""
    return _compared(experiments, study, scheme, over, place, _points_at_equal_steps)


def points_at_equal_time(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return a scheme's accuracy less another's, in points, at the end of the same budget of time."""
    return _compared(experiments, study, scheme, over, place, lambda one, other: 100 * (_final(one) - _final(other)))


def growth(experiments: Experiments, study: str, scheme: str, over: str) -> list[Sample]:
    """Return by which factor a scheme's gain over another grows from the fastest cell to the slowest."""
    slow, fast = (faster(experiments, study, scheme, over, place) for place in (SLOWEST, FASTEST))
    return [Sample(f"{one.where} against {other.where}", one.value / other.value) for one in slow for other in fast if one != other]


def fewer_bits(experiments: Experiments, study: str, scheme: str) -> list[Sample]:
    """Return how many times fewer bits than 32 a value costs in what one worker has to say; to and from a server, the mean of both ways."""
    samples = []
    for where, runs in _cells(experiments, study):
        values = [_payload_bits(run) for run in runs if run.scheme == scheme]
        if values:
            samples.append(Sample(where, 32 / float(np.median(values))))
    return samples


def named(samples: Iterable[Sample], word: str) -> list[Sample]:
    """Say in each sample what it is of."""
    return [replace(sample, where=", ".join(part for part in (word, sample.where) if part)) for sample in samples]


def _compared(experiments: Experiments, study: str, scheme: str, over: str, place: slice, compare: Compare) -> list[Sample]:
    samples = []
    for where, runs in _cells(experiments, study)[place]:
        sides = [{run.repeat: run for run in runs if run.scheme == name} for name in (scheme, over)]
        values = [compare(sides[0][repeat], sides[1][repeat]) for repeat in sides[0].keys() & sides[1].keys()]
        values = [value for value in values if np.isfinite(value)]
        if values:
            samples.append(Sample(where, float(np.median(values))))
    return samples


def _cells(experiments: Experiments, study: str) -> list[tuple[str, list[Run]]]:
    """Return each cell in words with its valid runs, that of the slowest link first."""
    results = experiments.get(study)
    if results is None:
        return []
    rate = next((field for field in swept_fields(results) if field.unit == "bit/s"), None)
    cells: dict[str, list[Run]] = {}
    for run in sorted(results.runs, key=lambda run: rate.values.get(run.slug, 0.0) if rate else 0.0):
        cells.setdefault(cell_words(run.cell), []).extend([run] if run.valid else [])
    return list(cells.items())


def _throughput(run: Run) -> float:
    return metrics.throughput_samples_s(run.steps)


def _median_step_s(run: Run) -> float:
    return float(run.steps.loc[run.steps["rank"] == 0, "step_s"].median())


def _final(run: Run) -> float:
    return metrics.final_accuracy(run.evals)


def _time_ratio(one: Run, other: Run) -> float:
    target = min(one.evals["accuracy"].max(), other.evals["accuracy"].max())
    return metrics.time_to_accuracy_s(other.evals, target) / metrics.time_to_accuracy_s(one.evals, target)


def _points_at_equal_steps(one: Run, other: Run) -> float:
    evals = [run.evals.sort_values("step").dropna(subset=["accuracy"]) for run in (one, other)]
    if not all(map(len, evals)):
        return float("nan")
    step = min(each["step"].max() for each in evals)
    mine, theirs = (float(np.interp(step, each["step"], each["accuracy"])) for each in evals)
    return 100 * (mine - theirs)


def _payload_bits(run: Run) -> float:
    workers = len(dig(run.manifest, "workers") or [])
    bits = metrics_time.bits_per_value(run.steps, workers, run.has_server).mean(axis=1).median()
    return float(bits) * (1 if run.has_server else 2 / workers)  # around a ring, every payload is sent by all but one
