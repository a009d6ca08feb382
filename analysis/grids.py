"""Two swept numbers as a grid: each scheme's throughput, its speed-up, and which scheme wins where. Pure.

A cell is the median over its valid repeats; without a valid one, over those there are, and it is not valid. A value that cannot be
had is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pandas as pd

from analysis.fields import Field, swept_fields
from analysis.load import Results, Run
from analysis.summary import BASELINE
from analysis.words import cell_words

TRUE_WITHIN = 0.02  # a run is valid with a bottleneck that delivered 98 % of its rate: closer numbers are not told apart


@dataclass(frozen=True)
class Cell:
    """One scheme at one point of the grid."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    valid: bool = False


@dataclass(frozen=True)
class Win:
    """The best of the valid schemes at one point."""

    scheme: str
    margin: float  # its throughput over the next one's, less 1; NaN without a next one
    tied: tuple[str, ...]  # the others whose intervals reach its own, or that are too close to be told apart
    compared: int  # schemes with a valid run here


@dataclass(frozen=True)
class Grid:
    """Every scheme over two fields, x and y; whatever else was swept is the same in all of it."""

    title: str  # of what else was swept
    x: Field
    y: Field
    schemes: dict[str, str]  # slug and label
    cells: dict[tuple[str, float, float], Cell]

    @property
    def points(self) -> Iterator[tuple[int, int, float, float]]:
        """Yield column, row, x and y of every point."""
        for (column, x), (row, y) in product(enumerate(self.x.numbers), enumerate(self.y.numbers)):
            yield column, row, x, y

    def cell(self, scheme: str, x: float, y: float) -> Cell:
        """Return a scheme's cell; empty where it has no data."""
        return self.cells.get((scheme, x, y), Cell())

    def throughput(self, scheme: str) -> dict[tuple[float, float], Cell]:
        """Return a scheme's throughput at every point."""
        return {(x, y): self.cell(scheme, x, y) for _, _, x, y in self.points}

    def speedup(self, scheme: str) -> dict[tuple[float, float], Cell]:
        """Return a scheme's throughput over that of a valid `none` at every point; none is stated over one that is not valid."""
        found = {}
        for _, _, x, y in self.points:
            base, mine = self.cell(BASELINE, x, y), self.cell(scheme, x, y)
            found[x, y] = Cell(mine.value / base.value, valid=mine.valid) if base.valid else Cell()
        return found

    def winner(self, x: float, y: float) -> Win | None:
        """Return the fastest valid scheme at a point, and who is as fast within the intervals; None without a valid one."""
        valid = [(cell, slug) for slug in self.schemes if (cell := self.cell(slug, x, y)).valid]
        ranked = sorted(valid, key=lambda pair: -pair[0].value)
        if not ranked:
            return None
        (best, scheme), *others = ranked
        margin = best.value / others[0][0].value - 1 if others else math.nan
        tied = [slug for cell, slug in others if cell.high >= best.low or best.value < cell.value * (1 + TRUE_WITHIN)]
        return Win(scheme, margin, tuple(tied), len(ranked))


def axes(results: Results) -> tuple[Field, Field] | None:
    """Return the first two swept fields that take at least two numbers each."""
    numeric = [field for field in swept_fields(results) if len(field.numbers) > 1]
    return (numeric[0], numeric[1]) if len(numeric) > 1 else None


def grids(results: Results, summary: pd.DataFrame) -> list[Grid]:
    """Return a grid for each combination of whatever else was swept, the kind of workload too; none without two numeric fields."""
    found = axes(results)
    if found is None:
        return []
    x, y = found
    runs = {run.slug: run for run in results.runs if run.slug in x.values and run.slug in y.values}
    rows = summary[summary["run"].isin(runs) & summary["throughput_samples_s"].notna()]
    titles = {slug: _title(run, (x.path, y.path), results.workloads) for slug, run in runs.items()}
    made = []
    for title in dict.fromkeys(titles.values()):
        mine = rows[[titles[slug] == title for slug in rows["run"]]]
        points = [mine["scheme"], mine["run"].map(x.values), mine["run"].map(y.values)]
        cells = {}
        for _, repeats in mine.groupby(points) if len(mine) else ():
            slug = str(repeats["run"].iloc[0])
            cells[str(repeats["scheme"].iloc[0]), float(x.values[slug]), float(y.values[slug])] = _cell(repeats)
        made.append(Grid(title, x, y, results.schemes, cells))
    return made


def _cell(repeats: pd.DataFrame) -> Cell:
    good = repeats[repeats["valid"].fillna(False)]
    used = good if len(good) else repeats
    low, high = used["throughput_low"].median(), used["throughput_high"].median()
    return Cell(float(used["throughput_samples_s"].median()), float(low), float(high), bool(len(good)))


def _title(run: Run, shown: tuple[str, str], workloads: list[str]) -> str:
    rest = {path: value for path, value in run.cell.items() if path not in shown}
    return ", ".join([run.workload] * (len(workloads) > 1) + [cell_words(rest)] * bool(rest))
