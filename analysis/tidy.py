"""The tables of an experiment as tidy frames: one row an observation, one column a variable, the run and its cell beside it.

frames = analysis.load("results/quick").frames
frames.runs, frames.schemes, frames.steps, frames.evals, frames.links, frames.events, frames.background, frames.regrets
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from analysis import frames
from analysis.fields import swept_fields
from analysis.load import Results, Run
from analysis.pairs import compare
from analysis.stacking import stack
from analysis.summary import by_scheme, summarise
from analysis.table import long_table

OF_ONE_RUN = ["run", "repeat", "seed", "status", "reason", "apart"]  # what a row that is of several runs has no use for


@dataclass(frozen=True)
class Frames:
    """The tables. In each the run's name, scheme, cell (SI units) and repeat stand in front, whether it is valid, and whether apart."""

    results: Results

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Return one row a run: its cell, every metric of the summary, its verdict; planned runs that are missing too."""
        return long_table(self.results, summarise(self.results))

    @cached_property
    def schemes(self) -> pd.DataFrame:
        """Return one row a cell, workload and scheme: the medians over its repeats, and their intervals."""
        return by_scheme(self.runs).drop(columns=OF_ONE_RUN)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Return one row a worker and step."""
        return self.read("steps")

    @cached_property
    def evals(self) -> pd.DataFrame:
        """Return one row an evaluation."""
        return self.read("evals")

    @property
    def links(self) -> pd.DataFrame:
        """Return one row a sample of a queue, all of them; `read` and `each` take less memory."""
        return self.read("links")

    @cached_property
    def events(self) -> pd.DataFrame:
        """Return one row an event."""
        return self.read("events")

    @cached_property
    def background(self) -> pd.DataFrame:
        """Return one row an interval of background traffic; none of a run without."""
        return self.read("background")

    @cached_property
    def regrets(self) -> pd.DataFrame:
        """Return one row an adaptive scheme and cell: its median time to the target, the best fixed ratio's, and what lies between."""
        return compare([self.results]).regrets.drop(columns="cell_key")

    def read(
        self,
        table: str,
        columns: Iterable[str] | None = None,
        runs: Iterable[str] | None = None,
        filters: frames.Filters | None = None,
    ) -> pd.DataFrame:
        """Return a table, or some of its columns, runs and rows (filters as of pandas.read_parquet); only these are read."""
        chosen = self._chosen(runs)
        wanted = self._columns(table, columns)
        if not chosen:
            return frames.to_frame(frames.no_rows(table, wanted), self._context([]))
        columns, lengths = stack((run.read(table, wanted, filters) for run in chosen), sum(run.most_rows(table) for run in chosen))
        context = {name: np.repeat(values, lengths) for name, values in self._context(chosen).items()}
        return pd.DataFrame({**context, **columns}, copy=False)

    def each(
        self,
        table: str,
        columns: Iterable[str] | None = None,
        runs: Iterable[str] | None = None,
        filters: frames.Filters | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield the same run by run, so that one run's rows are in memory at a time."""
        chosen = list(columns) if columns is not None else None
        for run in self._chosen(runs):
            yield self.read(table, chosen, [run.slug], filters)

    def _chosen(self, slugs: Iterable[str] | None) -> list[Run]:
        if slugs is None:
            return self.results.runs
        wanted = [slugs] if isinstance(slugs, str) else list(slugs)
        known = {run.slug: run for run in self.results.runs}
        if unknown := [slug for slug in wanted if slug not in known]:
            raise KeyError(f"{self.results.folder} has no run {unknown[0]}; it has {', '.join(known)}")
        return [known[slug] for slug in wanted]

    def _columns(self, table: str, columns: Iterable[str] | None) -> list[str]:
        if table not in frames.TABLES:
            raise KeyError(f"there is no table {table}; there are runs, {', '.join(frames.TABLES)}")
        every = frames.all_columns(table)
        wanted = every if columns is None else list(columns)
        if unknown := [name for name in wanted if name not in every]:
            raise KeyError(f"{table} has no column {unknown[0]}; it has {', '.join(every)}")
        return wanted

    def _context(self, runs: list[Run]) -> dict[str, Any]:
        """Return what stands in front of every row: one value a run, names as categories."""
        context: dict[str, Any] = {
            "run": _names([run.slug for run in runs]),
            "scheme": _names([run.scheme for run in runs]),
            "scheme_label": _names([run.label for run in runs]),
            "workload": _names([run.workload for run in runs]),
        }
        for field in swept_fields(self.results):
            values = [field.values.get(run.slug) for run in runs]
            numbers = bool(field.numbers)
            context[field.column] = np.array(values, dtype=float) if numbers else _names([str(value) for value in values])
        context["repeat"] = np.array([run.repeat for run in runs], dtype=np.int32)
        context["valid"] = np.array([run.valid for run in runs], dtype=bool)
        context["apart"] = np.array([run.slug in self.results.apart for run in runs], dtype=bool)
        return context

    def __repr__(self) -> str:
        sizes = [f"{table} {sum(run.most_rows(table) for run in self.results.runs):,}" for table in frames.TABLES]
        return f"Frames of {self.results.name}, rows: runs {len(self.results.runs):,}, {', '.join(sizes)}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + "".join(f"<p>{escape(text)}</p>" for text in self.results.problems)


def _names(values: list[str]) -> Any:
    return pd.Categorical(values, categories=list(dict.fromkeys(values)))
