"""One row a run: the table behind every bar, and summary.csv.

Speed-ups are over scheme `none` in the same cell and workload, valid runs only: a speed-up over a baseline that cannot be
trusted is not stated. Valid repeats share their intervals; of a single run only the throughput has one, that of its own windows;
`interval` says how the throughput's was had. A run that stands `apart` (of another experiment, or of another set-up than its cell's) has
its own numbers only, and is in nobody's median.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import background, metrics, queues
from analysis.files import whole
from analysis.load import Results, Run, dig

BASELINE = "none"
PARTS = tuple(part for part in metrics.PARTS if part != "idle")
INTERVALS = {  # of which values repeats share an interval, and where its ends stand
    "throughput_samples_s": ["throughput_low", "throughput_high"],
    "final_accuracy": ["final_accuracy_low", "final_accuracy_high"],
    "time_to_accuracy_s": ["time_to_accuracy_low_s", "time_to_accuracy_high_s"],
    "speedup_over_none": ["speedup_low", "speedup_high"],
}
ENDS = [end for ends in INTERVALS.values() for end in ends]
VALUES = (
    *("throughput_samples_s", "throughput_low", "throughput_high", "final_accuracy", "final_accuracy_low", "final_accuracy_high"),
    *("target_accuracy", "time_to_accuracy_s", "time_to_accuracy_low_s", "time_to_accuracy_high_s"),
    *("mean_step_s", "compute_s", "encode_s", "exchange_s", "idle_s", "decode_s", "samples_per_step", "bytes_per_step"),
    *("wire_bytes_per_step", "bytes_sent", "compression_ratio", "speedup_over_none", "speedup_low", "speedup_high"),
    *("predicted_step_s", "queue_mean_s", "queue_p95_s", "background_bps", "background_share", "background_fairness"),
    *("fidelity", "compute_inflation", "time_dilation"),
)
VERDICT = ("interval", "valid", "status", "invalid_reasons", "apart")


def summarise(results: Results) -> pd.DataFrame:
    """Return one row a planned or present run; a missing or unreadable run has its status and nothing else."""
    return results.once("summary", _summarise).copy()


def _summarise(results: Results) -> pd.DataFrame:
    rows = {run.slug: _row(run) | {"apart": results.apart.get(run.slug)} for run in results.runs}
    for slug in results.missing:
        rows[slug] = {"run": slug, "status": "missing"}
    for slug in results.unreadable:
        rows[slug] = {"run": slug, "status": "damaged"}
    order = [slug for slug in results.planned if slug in rows] + [slug for slug in rows if slug not in results.planned]

    swept = list(dict.fromkeys(key for cell in results.cells for key in cell))
    head = ["run", "scheme", "scheme_label", "workload", *swept, "repeat"]
    table = pd.DataFrame([rows[slug] for slug in order]).reindex(columns=[*head, *VALUES, *VERDICT])
    for column in VALUES:
        table[column] = pd.to_numeric(table[column]).astype(float)
    table["repeat"] = table["repeat"].astype("Int64")
    table["valid"] = table["valid"].astype("boolean")
    _compare(table, [*swept, "workload"], _asked_targets(results), {run.slug: run for run in results.runs})
    return table


def write_summary(table: pd.DataFrame, path: Path) -> Path:
    """Write the table as CSV, an empty cell for what is not known."""
    with whole(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g")
    return path


def by_scheme(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row a cell, workload and scheme: the median over its repeats, of the valid ones if any is valid.

    `reached` is how many of them got to the target accuracy. Runs that stand apart are left out. The medians of several repeats that are
    not valid have no intervals.
    """
    cells = swept_columns(table)
    present = table[table["throughput_samples_s"].notna() & table["apart"].isna()]
    rows: list[dict[Any, Any]] = []
    for _, group in present.groupby([*cells, "workload", "scheme"], sort=False, dropna=False):
        good = group[group["valid"].fillna(False)]
        used = good if len(good) else group
        row: dict[Any, Any] = used.iloc[0].to_dict()
        row |= used[list(VALUES)].median().to_dict() if len(used) > 1 else {}  # of intervals too: valid repeats share theirs
        row |= dict.fromkeys(ENDS, math.nan) | {"interval": None} if len(used) > 1 and not len(good) else {}
        row |= {"time_to_accuracy_s": metrics.median_time_s(used["time_to_accuracy_s"]), "reached": used["time_to_accuracy_s"].count()}
        row |= {"repeats": len(used), "left_out": len(group) - len(used), "valid": bool(len(good))}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*present.columns, "reached", "repeats", "left_out"])


def swept_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns of the cell: those between `workload` and `repeat`."""
    columns = list(table.columns)
    return columns[columns.index("workload") + 1 : columns.index("repeat")]


def _row(run: Run) -> dict[str, Any]:
    """Return what one run says by itself, and whether it may be believed as far as is known by now."""
    row = run.once("measured", measured)
    return {**row, "valid": run.valid, "status": run.status, "invalid_reasons": "; ".join(run.invalid_reasons) or None}


def measured(run: Run) -> dict[str, Any]:
    """Work out the numbers of one run; reading its tables may find damage."""
    steps, evals = run.steps, run.evals
    interval = metrics.throughput_interval(steps)
    queue, rival = queues.waits(run), background.fairness(run)
    workers = len(dig(run.manifest, "workers") or []) or int(steps["rank"].nunique())
    return {
        "run": run.slug,
        "scheme": run.scheme,
        "scheme_label": run.label,
        "workload": run.workload,
        **{key: _cell_value(value) for key, value in run.cell.items()},
        "repeat": run.repeat,
        "throughput_samples_s": metrics.throughput_samples_s(steps),
        "throughput_low": interval.low,
        "throughput_high": interval.high,
        "final_accuracy": metrics.final_accuracy(evals),
        "mean_step_s": metrics.mean_step_s(steps),
        **{f"{part}_s": metrics.median_part_s(steps, part) for part in PARTS},
        "idle_s": float(metrics.idle_s(steps).median()),
        "samples_per_step": metrics.samples_per_step(steps),
        "bytes_per_step": metrics.bytes_per_step(steps),
        "wire_bytes_per_step": metrics.wire_bytes_per_step(steps),
        "bytes_sent": metrics.bytes_sent(steps),
        "compression_ratio": metrics.compression_ratio(steps, workers),
        "predicted_step_s": number(dig(run.manifest, "prediction", "step_s")),
        "queue_mean_s": queue.mean_s,
        "queue_p95_s": queue.p95_s,
        "background_share": rival.share,
        "background_fairness": rival.jain,
        "fidelity": number(dig(run.manifest, "fidelity", "value")),
        "compute_inflation": number(run.manifest.get("compute_inflation")),
        "background_bps": metrics.background_bps(run.background, steps),
        "time_dilation": run.dilation,
        "interval": interval.method or None,
    }


def _compare(table: pd.DataFrame, cell: list[str], asked: dict[str, float], runs: dict[str, Run]) -> None:
    """Fill what needs other runs of the same cell: speed-up, target, time to it, the intervals over repeats."""
    present = table[table["scheme"].notna()]
    targets = dict(asked)  # all that a run has which stands apart
    for _, group in present[present["apart"].isna()].groupby(cell, sort=False, dropna=False):
        none = group[(group["scheme"] == BASELINE) & group["valid"].fillna(False)]
        baseline = none["throughput_samples_s"].median()
        table.loc[group.index, "speedup_over_none"] = group["throughput_samples_s"] / baseline
        finals = none["final_accuracy"].tolist()
        targets |= {slug: metrics.target_accuracy(asked.get(slug), finals) for slug in group["run"]}
    for index, slug in present["run"].items():
        target, evals = targets.get(slug, math.nan), runs[slug].timed_evals
        table.loc[index, "target_accuracy"] = target if len(evals) else math.nan
        table.loc[index, "time_to_accuracy_s"] = metrics.time_to_accuracy_s(evals, target)
    for _, repeats in table[table["apart"].isna() & table["valid"].fillna(False)].groupby([*cell, "scheme"], sort=False, dropna=False):
        _fill_intervals(table, repeats)
    table["final_accuracy_high"] = table["final_accuracy_high"].clip(upper=1.0)  # Student knows no highest


def _fill_intervals(table: pd.DataFrame, repeats: pd.DataFrame) -> None:
    """Give valid repeats the intervals of their medians; one that did not reach the target counts as later than any that did."""
    never = repeats["target_accuracy"].notna() & repeats["time_to_accuracy_s"].isna()
    for value, ends in INTERVALS.items():
        known = repeats[value].mask(never, math.inf) if value == "time_to_accuracy_s" else repeats[value]
        interval = metrics.median_interval(known.dropna().tolist())
        if interval.method:
            table.loc[repeats.index, ends] = interval.low, interval.high
        if interval.method and value == "throughput_samples_s":
            table.loc[repeats.index, "interval"] = interval.method


def _asked_targets(results: Results) -> dict[str, float]:
    """Return the accuracy that each run was asked to reach: by its budget, else by its workload."""
    asked: dict[str, float] = {}
    for keys in (("target_accuracy",), ("budget", "accuracy")):
        found = {run.slug: number(dig(run.manifest, "spec", "workload", *keys)) for run in results.runs}
        asked |= {slug: value for slug, value in found.items() if not math.isnan(value)}
    return asked


def number(value: Any) -> float:
    """Return a manifest's number as a float, NaN for null or anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _cell_value(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else str(value)
