"""What claims are measured by: one scheme against another in the same cell, valid runs only, pairs of the same repeat.

Each returns one sample a cell, the median over its repeats; where a cell of the study lacks a valid run of either scheme, its sample is
not a number. Cells are in the order of a swept rate, and `place` chooses among them: SLOWEST, FASTEST, or all. Which is the slowest is
not known before every cell has been run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import numpy as np
import pandas as pd

from analysis import metrics, metrics_time
from analysis.fields import swept_fields
from analysis.grids import TRUE_WITHIN
from analysis.load import Results, Run, dig
from analysis.papers.claims import TOLERANCE, Experiments, Sample
from analysis.words import cell_words

EVERY, SLOWEST, FASTEST = slice(None), slice(1), slice(-1, None)
FEW_STEPS, SHORT_S = 10, 10.0  # what fewer steps, or less time, tell is known no better than a published gain has to be met
STANDARD_ERRORS = 2.0  # within which two accuracies are not told apart
Compare = Callable[[Run, Run], Sample]


class Measure(Protocol):
    """Of a study, a scheme against another."""

    def __call__(self, experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
        """Return one sample a cell."""


def faster(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme's throughput exceeds another's."""
    return _compared(experiments, study, scheme, over, place, _faster)


def faster_once_settled(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme's median step is shorter than another's: a controller's few steps on its way hardly move it."""
    return _compared(experiments, study, scheme, over, place, _faster_once_settled)


def sooner(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return by which factor a scheme is sooner at an accuracy: the highest that both of a pair reached, at any evaluation."""
    return _compared(experiments, study, scheme, over, place, _sooner)


def points_at_equal_steps(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return a scheme's accuracy less another's, in points, at the last evaluation that both had after as many steps."""
    return _compared(experiments, study, scheme, over, place, _points_at_equal_steps)


def points_at_equal_time(experiments: Experiments, study: str, scheme: str, over: str, place: slice = EVERY) -> list[Sample]:
    """Return a scheme's accuracy less another's, in points, at the end of the same budget of time."""
    return _compared(experiments, study, scheme, over, place, _points_at_equal_time)


def growth(experiments: Experiments, study: str, scheme: str, over: str) -> list[Sample]:
    """Return by which factor a scheme's gain over another grows from the fastest cell to the slowest."""
    slow, fast = (faster(experiments, study, scheme, over, place) for place in (SLOWEST, FASTEST))
    if any(math.isnan(sample.value) for sample in slow + fast):
        return [Sample("", math.nan)]
    return [ratio(f"{one.where} against {other.where}", one, other) for one in slow for other in fast if one.where != other.where]


def ratio(where: str, one: Sample, other: Sample) -> Sample:
    """Return the quotient of two samples, as uncertain as both are."""
    value = one.value / other.value
    return Sample(where, value, abs(value) * (one.margin / one.value + other.margin / other.value))


def fewer_bits(experiments: Experiments, study: str, scheme: str) -> list[Sample]:
    """Return how many times fewer bits than 32 a value costs in what one worker has to say; to and from a server, the mean of both ways."""
    return _measured(experiments, study, (scheme,), EVERY, lambda runs: [_fewer_bits(run) for run in runs if run.scheme == scheme])


def named(samples: Iterable[Sample], word: str) -> list[Sample]:
    """Say in each sample what it is of."""
    return [replace(sample, where=", ".join(part for part in (word, sample.where) if part)) for sample in samples]


def _compared(experiments: Experiments, study: str, scheme: str, over: str, place: slice, compare: Compare) -> list[Sample]:
    def pairs(runs: list[Run]) -> list[Sample]:
        mine, theirs = ({run.repeat: run for run in runs if run.scheme == name} for name in (scheme, over))
        return [compare(mine[repeat], theirs[repeat]) for repeat in mine.keys() & theirs.keys()]

    return _measured(experiments, study, (scheme, over), place, pairs)


def _measured(
    experiments: Experiments, study: str, schemes: Iterable[str], place: slice, measure: Callable[[list[Run]], list[Sample]]
) -> list[Sample]:
    """Return the median of what is measured in each cell; nothing of a study that is not meant to have these schemes."""
    results = experiments.get(study)
    if results is None:
        return [Sample("", math.nan)]
    if not _planned_schemes(results).issuperset(schemes):
        return []
    cells = _cells(results)
    lacking = [Sample("a cell that was not run", math.nan)] * (_planned_cells(results) - len(cells))
    if lacking and place != EVERY:
        return lacking[:1]
    return [_median(where, measure(runs)) for where, runs in cells[place]] + lacking


def _median(where: str, samples: list[Sample]) -> Sample:
    known = [sample for sample in samples if math.isfinite(sample.value)]
    if not known:
        return Sample(where, math.nan)
    detail = ", ".join(dict.fromkeys(sample.where for sample in known if sample.where))
    value, margin = (float(np.median([getattr(sample, name) for sample in known])) for name in ("value", "margin"))
    return Sample(", ".join(part for part in (where, detail) if part), value, max(margin, _spread([sample.value for sample in known])))


def _spread(values: list[float]) -> float:
    """Return by how much the median of repeats may be off, to the farther side; nothing of one."""
    above, below = (metrics.median_interval([side * value for value in values]).high for side in (1, -1))
    value = float(np.median(values))
    return float(np.nanmax([above - value, below + value, 0.0]))


def _cells(results: Results) -> list[tuple[str, list[Run]]]:
    """Return each cell in words with its valid runs, that of the slowest link first."""
    rate = next((field for field in swept_fields(results) if field.unit == "bit/s"), None)
    cells: dict[str, list[Run]] = {}
    for run in sorted(results.compared.runs, key=lambda run: rate.values.get(run.slug, 0.0) if rate else 0.0):
        cells.setdefault(cell_words(run.cell), []).extend([run] if run.valid else [])
    return list(cells.items())


def _planned_cells(results: Results) -> int:
    sweep = dig(results.spec, "sweep")
    return math.prod(len(values) for values in sweep.values() if isinstance(values, list)) if isinstance(sweep, dict) else 1


def _planned_schemes(results: Results) -> set[str]:
    schemes = dig(results.spec, "schemes")
    told = [scheme for scheme in schemes if isinstance(scheme, dict)] if isinstance(schemes, list) else []
    return {str(scheme.get("slug")) for scheme in told} | set(results.schemes)


def _faster(one: Run, other: Run) -> Sample:
    rates = [metrics.throughput_samples_s(run.steps) for run in (one, other)]
    # the few windows of a short run are mostly a controller on its way: they tell what it did, not how it scatters
    own = 0.0 if _is_short(one, other) else sum(map(_share, rates, (metrics.throughput_interval(run.steps) for run in (one, other))))
    return _factor(one, other, rates[0] / rates[1], own)


def _faster_once_settled(one: Run, other: Run) -> Sample:
    steps_s = [run.steps.loc[run.steps["rank"] == 0, "step_s"] for run in (other, one)]
    medians_s = [float(each.median()) for each in steps_s]
    own = sum(map(_share, medians_s, (metrics.median_interval(each.tolist()) for each in steps_s)))
    return _factor(one, other, medians_s[0] / medians_s[1], own)


def _factor(one: Run, other: Run, value: float, own: float) -> Sample:
    """Return a factor between two runs, whose values may be off by a share of their own.

    Beside that it is as uncertain as a valid run's network may be, or much more where the runs were short.
    """
    steps = min(metrics.step_count(run.steps) for run in (one, other))
    margin = own + (TOLERANCE if _is_short(one, other) else TRUE_WITHIN)
    return Sample(f"{steps} steps" if steps < FEW_STEPS else "", value, value * margin)


def _is_short(*runs: Run) -> bool:
    return any(metrics.step_count(run.steps) < FEW_STEPS or run.steps.loc[run.steps["rank"] == 0, "step_s"].sum() < SHORT_S for run in runs)


def _points(mine: pd.Series, theirs: pd.Series) -> Sample:
    """Return the difference of two evaluations: as uncertain as so many test images make it."""
    variance = sum(row["accuracy"] * (1 - row["accuracy"]) / row["samples"] for row in (mine, theirs))
    return Sample("", 100 * (mine["accuracy"] - theirs["accuracy"]), 100 * STANDARD_ERRORS * math.sqrt(variance))


def _share(value: float, interval: metrics.Interval) -> float:
    """Return which share of a value it may be off by, to the farther side of its interval; nothing where there is none."""
    return float(np.nanmax([interval.high - value, value - interval.low, 0.0])) / value


def _trained(evals: pd.DataFrame) -> pd.DataFrame:
    """Return the evaluations of a model that has been trained at all, in order; every run begins with one of the untrained model."""
    known = evals.dropna(subset=["accuracy"]).sort_values(["step", "samples"])
    return known[known["step"] > 0]


def _sooner(one: Run, other: Run) -> Sample:
    """Return the quotient of two times to an accuracy: as uncertain as the evaluations are far apart, for nobody looked in between."""
    evals = [_trained(run.timed_evals) for run in (one, other)]
    target = min(each["accuracy"].max() for each in evals)
    times_s = [metrics.time_to_accuracy_s(each, target) for each in evals]
    looked_s = [each.loc[each["train_s"] < reached_s, "train_s"].max() for each, reached_s in zip(evals, times_s, strict=True)]
    unseen = [1 - (0.0 if math.isnan(before_s) else before_s) / reached_s for before_s, reached_s in zip(looked_s, times_s, strict=True)]
    value = times_s[1] / times_s[0]
    return Sample("", value, value * max(unseen))


def _points_at_equal_time(one: Run, other: Run) -> Sample:
    last = [_trained(run.evals).tail(1) for run in (one, other)]
    return _points(*(rows.iloc[0] for rows in last)) if all(map(len, last)) else Sample("", math.nan)


def _points_at_equal_steps(one: Run, other: Run) -> Sample:
    mine, theirs = (
        _trained(run.evals).drop_duplicates(["step", "samples"]).set_index(["step", "samples"], drop=False) for run in (one, other)
    )
    common = mine.index.intersection(theirs.index)
    if not len(common):
        return Sample("", math.nan)
    step, _ = last = max(common)
    return replace(_points(mine.loc[last], theirs.loc[last]), where=f"after {step:.0f} steps")


def _fewer_bits(run: Run) -> Sample:
    workers = len(dig(run.manifest, "workers") or [])
    bits = float(metrics_time.bits_per_value(run.steps, workers, run.has_server).mean(axis=1).median())
    payload_bits = bits * (1 if run.has_server else 2 / max(1, workers))  # around a ring, every payload is sent by all but one
    return Sample("", 32 / payload_bits)
