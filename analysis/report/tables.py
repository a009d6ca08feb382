"""The report's summary table: each cell as it is read, and what it is sorted by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.fields import swept_fields
from analysis.load import Results
from analysis.report.read import measure, say
from analysis.summary import INTERVALS, by_scheme
from analysis.words import reached_words, short_name

Row = dict[Any, Any]


@dataclass(frozen=True)
class Column:
    """A heading, whether it holds numbers, and what it means where that needs words."""

    title: str
    numeric: bool
    about: str = ""


@dataclass(frozen=True)
class Cell:
    """What stands in the table; `more` in small print under it."""

    text: str
    sort: float | str
    more: str = ""


@dataclass(frozen=True)
class TableRow:
    """A run, or a scheme with its repeats."""

    scheme: str
    anchor: str  # of the run's part of the page, if it is one run or its first
    valid: bool
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """The summary, with what its numbers rest on in words."""

    columns: list[Column]
    rows: list[TableRow]
    notes: list[str]


def summary_table(results: Results, runs: pd.DataFrame, anchors: dict[str, str]) -> Table:
    """Return a row a run, or with repeats a row a cell, workload and scheme; runs without a single step are listed elsewhere."""
    repeated = bool((runs["repeat"].fillna(1) > 1).any())
    shown = _medians(runs) if repeated else runs[runs["scheme"].notna()]
    rows: list[Row] = shown.to_dict("records")
    made = [(column, cell) for column, cell in _columns(results, repeated).items() if _is_needed(column, results, rows)]
    made_rows = [
        TableRow(str(row["scheme"]), anchors.get(str(row["run"]), ""), bool(row["valid"] is True), [cell(row) for _, cell in made])
        for row in rows
    ]
    methods = shown["interval"].dropna().unique()
    notes = [f"Throughput is of all workers together; under it its interval ({'; '.join(map(str, methods))})."] if len(methods) else []
    notes.append("Speed-up is over valid runs of scheme none in the same cell; a dash means that it cannot be told.")
    if repeated:
        notes.append("Each row is the median of its valid repeats; one that did not reach the accuracy counts as later than any that did.")
        notes.append("Under speed-up, accuracy and time to accuracy stand their intervals, where several valid repeats have one.")
    return Table([column for column, _ in made], made_rows, notes)


def _medians(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a scheme, then one for each run that stands apart."""
    apart = runs[runs["apart"].notna()]
    alone = apart.assign(repeats=1, left_out=0, reached=apart["time_to_accuracy_s"].notna().astype(int))
    return pd.concat([by_scheme(runs), alone], ignore_index=True) if len(alone) else by_scheme(runs)


def _columns(results: Results, repeated: bool) -> dict[Column, Callable[[Row], Cell]]:
    made: dict[Column, Callable[[Row], Cell]] = {Column("Scheme", False): lambda row: _text(row["scheme_label"])}
    for field in swept_fields(results):
        made[Column(short_name(field.path).capitalize(), bool(field.numbers), field.path)] = _field(field.path, field.values)
    return made | {
        Column("Workload", False): lambda row: _text(row["workload"]),
        Column("Repeats", True, "valid ones, of all"): _repeats,
        Column("Throughput, samples/s", True): lambda row: _with_interval(row, "throughput_samples_s"),
        Column("Speed-up", True, "over no compression"): lambda row: _with_interval(row, "speedup_over_none", ".2f", after="x"),
        Column("Accuracy", True, "on the full test set at the end"): lambda row: _with_interval(row, "final_accuracy", ".1f", 100, " %"),
        Column("Time to accuracy", True, "training clock at the first evaluation at or above the target"): _time_to_accuracy,
        Column("Sent a step", True, "payload of one worker"): lambda row: Cell(
            measure(row["bytes_per_step"], "B"), _key(row["bytes_per_step"]), _times_fewer(row)
        ),
        Column("Queueing", True, "mean wait in the bottleneck's busiest queue during steps; under it the 95th percentile"): _queueing,
        Column("Others' share", True, "of the bottleneck's rate that background traffic got; under it Jain's index"): _others,
        Column("Fidelity", True, "delivered / configured rate while the bottleneck was backlogged"): lambda row: _number(
            row["fidelity"], ".3f"
        ),
        Column("Valid", False): _valid,
    }


def _is_needed(column: Column, results: Results, rows: list[Row]) -> bool:
    """Leave out what is the same for all, or known of none."""
    if column.title == "Workload":
        return len(results.workloads) > 1
    if column.title == "Repeats":
        return any("repeats" in row for row in rows)
    values = {"Accuracy": "final_accuracy", "Time to accuracy": "target_accuracy"}
    values |= {"Queueing": "queue_mean_s", "Others' share": "background_share"}
    return column.title not in values or any(not math.isnan(row[values[column.title]]) for row in rows)


def _field(path: str, values: dict[str, Any]) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        written, value = row.get(path), values.get(str(row["run"]))
        return Cell("-" if pd.isna(written) else str(written), _key(value) if isinstance(value, int | float) else str(value))

    return cell


def _repeats(row: Row) -> Cell:
    used, left_out = int(row["repeats"]), int(row["left_out"])
    total = used + left_out
    return Cell(f"{used if row['valid'] is True else 0} of {total}", float(used))


def _with_interval(row: Row, value: str, form: str | None = None, scale: float = 1.0, after: str = "") -> Cell:
    return Cell(say(row[value], form, scale, after), _key(row[value]), _ends(row, value, form, scale))


def _ends(row: Row, value: str, form: str | None = None, scale: float = 1.0) -> str:
    """Say the interval of a value, which may be open; nothing without one."""
    low, high = (say(row[end], form, scale) for end in INTERVALS[value])
    return "" if low == "-" else f"{low} to {high}" if high != "-" else f"from {low}"


def _time_to_accuracy(row: Row) -> Cell:
    time_s, target = row["time_to_accuracy_s"], say(row["target_accuracy"], ".1f", 100)
    if target == "-":
        return Cell("-", _key(time_s))
    never = reached_words(row.get("reached", 0), row.get("repeats", 1))
    ends = _ends(row, "time_to_accuracy_s", ".1f")
    more = f"to {target} %" + (f"; {ends} s" if ends else "")
    return Cell(never if math.isnan(time_s) else say(time_s, ".1f", after=" s"), _key(time_s), more)


def _queueing(row: Row) -> Cell:
    mean_s, p95_s = row["queue_mean_s"], row["queue_p95_s"]
    return Cell(say(mean_s, ".2g", 1e3, " ms"), _key(mean_s), f"p95 {say(p95_s, '.2g', 1e3)} ms" if p95_s == p95_s else "")


def _others(row: Row) -> Cell:
    share, jain = row["background_share"], row["background_fairness"]
    return Cell(say(share, ".0f", 100, " %"), _key(share), f"Jain {jain:.2f}" if jain == jain else "")


def _times_fewer(row: Row) -> str:
    return "" if math.isnan(row["compression_ratio"]) else f"1 / {row['compression_ratio']:.3g}"


def _valid(row: Row) -> Cell:
    if row["valid"] is True:
        return Cell("yes", "0", "" if pd.isna(row["apart"]) else f"not compared: {row['apart']}")
    status = str(row["status"])
    return Cell("no" if status == "complete" else status, "1", str(row["invalid_reasons"] or "").partition("; ")[0])


def _number(value: float, form: str, scale: float = 1.0, after: str = "") -> Cell:
    return Cell(say(value, form, scale, after), _key(value))


def _text(value: Any) -> Cell:
    return Cell(str(value), str(value))


def _key(value: Any) -> float:
    """Return what to sort by; what is not known comes last."""
    return -math.inf if value is None or pd.isna(value) else float(value)
