"""Turn a results folder into its summary, its long table and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis import style, summary, table
from analysis.figures import FIGURES
from analysis.load import load


@dataclass(frozen=True)
class Report:
    """What was written, what could not be read, and which figures had nothing to show."""

    paths: list[Path]
    problems: list[str]
    skipped: dict[str, str]  # figure → reason


def write_report(folder: Path | str) -> Report:
    """Write summary.csv, table.csv, table.parquet and figures/*.png and *.pdf into the results folder."""
    results = load(folder)
    rows = summary.summarise(results)
    paths = [summary.write_summary(rows, results.folder / "summary.csv")]
    paths += table.write_table(table.long_table(results, rows), results.folder)
    skipped: dict[str, str] = {}
    for name, module in FIGURES.items():
        figure = module.draw(results)
        if figure is None:
            skipped[name] = module.reason(results) or "nothing to draw"
        else:
            paths += style.save(figure, results.folder / "figures", name)
    return Report(paths, results.problems, skipped)
