"""Write the summary and figures of a results folder, and tell what is in them and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import analysis
from testbed import disk
from testbed.ownership import give_to_caller


def report(folder: Path, console: Console | None) -> None:
    """Write the report and print its table; without a console, print JSON for machines."""
    with disk.watched(folder):
        written = analysis.write_report(folder)
    summary = written.summary
    give_to_caller(folder)
    if console is None:
        rows = json.loads(summary.to_json(orient="records"))
        said = {"files": [str(path) for path in written.paths], "problems": written.problems, "not_drawn": written.skipped, "runs": rows}
        print(json.dumps({"folder": str(folder), **said}, indent=1))
        return
    console.print(_summary_table(summary))
    for factor in sorted({factor for factor in summary.get("time_dilation", []) if factor == factor} - {1.0}):
        console.print(f"time dilated {factor:g}x: all of this is in the experiment's time")
    for problem in written.problems:
        console.print(problem, style="yellow")
    for reason in dict.fromkeys(written.skipped.values()):
        figures = [name for name, why in written.skipped.items() if why == reason]
        console.print(f"not drawn: {', '.join(figures)}: {reason}", style="dim", soft_wrap=True)
    console.print(f"summary: {folder / 'summary.csv'}\ntable: {folder / 'table.csv'}\nfigures: {folder / 'figures'}", soft_wrap=True)
    console.print(f"report: {folder / 'report.html'} (one file, to look at or to send)", soft_wrap=True)


def _summary_table(summary: Any) -> Table:
    table = Table("run", "samples/s", "x none", "accuracy", "step", "kB/step", "fidelity", "valid", box=None, padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    for row in summary.to_dict("records"):
        table.add_row(
            str(row["run"]),
            _number(row["throughput_samples_s"], "{:.1f}"),
            _number(row["speedup_over_none"], "{:.2f}"),
            _number(row["final_accuracy"], "{:.3f}"),
            _number(row["mean_step_s"], "{:.3f} s"),
            _number(row["bytes_per_step"], "{:.1f}", 1e-3),
            _number(row["fidelity"], "{:.3f}"),
            Text("yes", "green") if row["valid"] is True else Text("NO" if row["status"] == "complete" else str(row["status"]), "red"),
        )
    return table


def _number(value: Any, form: str, scale: float = 1.0) -> str:
    return "-" if value is None or value != value else form.format(value * scale)
