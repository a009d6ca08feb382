"""Turn a results folder into its summary, its long table, its figures and its page."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from analysis import parallel, style, summary, table, words
from analysis.errors import ResultsError
from analysis.figures import FIGURES
from analysis.files import whole
from analysis.load import Results, Run, load
from analysis.report import html, page
from analysis.report.series import series_of

BAD_INPUT = 2
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)
MANY_RUNS = 8  # from here on, several processes


@dataclass(frozen=True)
class Report:
    """What was written, what could not be read, and which figures had nothing to show."""

    paths: list[Path]
    problems: list[str]
    skipped: dict[str, str]  # figure → reason
    summary: pd.DataFrame


def write_report(folder: Path | str) -> Report:
    """Write summary.csv, table.csv, table.parquet, figures/*.png and *.pdf, and report.html into the results folder."""
    results = load(folder)
    try:
        return _write(results)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        raise ResultsError(f"{folder} cannot be written to ({error.strerror}). Copy it to a folder of your own, then give that.") from error


def _write(results: Results) -> Report:
    style.scheme_styles(results.schemes)  # finds the registry, before any fork
    processes = parallel.processors() if len(results.runs) >= MANY_RUNS else 1
    surveyed = parallel.each(_survey, results.runs, processes)
    strange = {run.slug: told for run, told in zip(results.runs, surveyed, strict=True) if isinstance(told, str)}
    results = replace(
        results,
        runs=[run for run in surveyed if isinstance(run, Run)],
        unreadable=[*results.unreadable, *strange],
        complaints=[*results.complaints, *(f"run {slug}: {told}" for slug, told in strange.items())],
    )
    if not results.runs:
        raise ResultsError(f"{results.folder} has no run that can be shown: {'; '.join(results.complaints)}")
    rows = summary.summarise(results)
    paths = [summary.write_summary(rows, results.folder / "summary.csv")]
    paths += table.write_table(table.long_table(results, rows), results.folder)

    drawn = dict(zip(FIGURES, parallel.each(lambda name: _draw(results, name), list(FIGURES), processes), strict=True))
    failures = [f"figure {name} could not be drawn ({figure.failure})" for name, figure in drawn.items() if figure.failure]
    pictures = {name: figure.paths[0] for name, figure in drawn.items() if figure.paths}
    skipped = {name: figure.reason for name, figure in drawn.items() if figure.reason}
    paths += [path for figure in drawn.values() for path in figure.paths]
    problems = [*results.problems, *failures]
    path = results.folder / "report.html"
    with whole(path) as temporary:
        temporary.write_text(html.render(page.gather(results, rows, pictures, skipped, problems)), encoding="utf-8")
    return Report([path, *paths], problems, skipped, rows)


def main(arguments: Sequence[str]) -> int:
    """Write the report of the folder named on the command line; 2 if it cannot be."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("Give one results folder: python -m analysis.report results/quick", file=sys.stderr)
        return BAD_INPUT
    try:
        report = write_report(arguments[0])
    except ResultsError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    for problem in report.problems:
        print(problem, file=sys.stderr)
    print(f"report: {report.paths[0]}")
    return 0


@dataclass(frozen=True)
class _Drawn:
    """What became of a figure: its files, or why there are none."""

    paths: list[Path]
    reason: str = ""
    failure: str = ""


def _survey(run: Run) -> Run | str:
    """Read all of a run and work out what summary and viewer need of it; so all damage is known before anything is said.

    What was read comes back with it, but for the link samples. A run that says what nobody thought of must not cost the others: then
    it is told what is wrong with it.
    """
    try:
        run.once("series", series_of)
        run.once("measured", summary.measured)
        words.network_words(run), words.slowed_words(run)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"its manifest or tables say what cannot be understood ({type(error).__name__}: {error})"
    return run


def _draw(results: Results, name: str) -> _Drawn:
    """Draw one figure and save it; a run nobody thought of must not cost the other figures."""
    try:
        figure = FIGURES[name].draw(results)
        if figure is None:
            return _Drawn([], reason=FIGURES[name].reason(results) or "nothing to draw")
        return _Drawn(style.save(figure, results.folder / "figures", name))
    except OSError:  # no room, no right to write: of no figure's making
        raise
    except Exception as error:
        return _Drawn([], failure=f"{type(error).__name__}: {error}")
