"""A column a cell and workload, a run a scheme: what figures over time are laid out by."""

from __future__ import annotations

from dataclasses import dataclass

from analysis import words
from analysis.load import Results, Run

MOST = 3  # columns side by side; a figure says what it leaves out


@dataclass(frozen=True)
class Column:
    """The runs of one cell and workload by scheme, in the experiment's order of schemes."""

    title: str
    repeats: dict[str, list[Run]]  # the valid ones if any is valid, else all, by their numbers

    @property
    def runs(self) -> dict[str, Run]:
        """Return one run a scheme: of its repeats the first."""
        return {slug: repeats[0] for slug, repeats in self.repeats.items()}


def columns(results: Results) -> list[Column]:
    """Return a column a cell and workload, in order."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in results.runs:
        groups.setdefault((run.cell_key, run.workload), []).append(run)
    made = []
    for (_, workload), runs in groups.items():
        repeats: dict[str, list[Run]] = {}
        for slug in results.schemes:
            every = sorted((run for run in runs if run.scheme == slug), key=lambda run: run.repeat)
            if every:
                repeats[slug] = [run for run in every if run.valid] or every
        title = ", ".join(part for part in (words.cell_words(runs[0].cell), workload if len(results.workloads) > 1 else "") if part)
        made.append(Column(title, repeats))
    return made


def schemes(results: Results, shown: list[Column]) -> list[str]:
    """Return the schemes of some columns, in the experiment's order."""
    present = {slug for column in shown for slug in column.repeats}
    return [slug for slug in results.schemes if slug in present]


def left_out(every: int, shown: int) -> list[str]:
    """Say that not all columns are shown, if so."""
    return [f"First {shown} of {every} cells."] if every > shown else []


def one_of_repeats(shown: list[Column]) -> list[str]:
    """Say that of repeats one is shown, if so."""
    several = any(len(repeats) > 1 for column in shown for repeats in column.repeats.values())
    return ["Of repeats the first valid one."] if several else []
