"""Answer what a reviewer asks of a comparison: how much faster, how soon accurate, how far from the best ratio, at what cost in accuracy.

    python -m analysis.compare RESULTS [RESULTS ...] [--accuracy 0.75] [--out FILE]

Runs of the same seed are pairs: they see the same data in the same order. Runs that are not valid are left out and counted.
A value that cannot be had is NaN, printed as "-".
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import metrics
from analysis.errors import ResultsError
from analysis.load import WORKLOAD_FIELDS, Results, Run, dig, load
from analysis.run import differing
from analysis.summary import BASELINE, number
from analysis.words import cell_words, network_words, small_print

FIXED = "topk-"  # the schemes among which the oracle is sought
ABOVE = 2.0  # the speed-up that the interval is held against
BAD_INPUT = 2
HEAD = ["cell_key", "cell", "workload", "scheme", "label", "runs", "invalid"]
SPEEDUPS = ["pairs", "unpaired", "throughput_samples_s", "none_samples_s", "ratio", "low", "high", "above"]
TIMES = ["target", "target_from", "adaptive", "seeds", "reached", "median_s", "pairs", "shorter"]
REGRETS = ["target", "seeds", "reached", "median_s", "oracle", "oracle_s", "oracle_seeds", "candidates", "excluded", "regret"]
GAPS = ["difference_points", "difference_min", "difference_max"]
ACCURACIES = ["steps", "seeds", "mean", "min", "max", "pairs", *GAPS, "other_steps", "no_final"]
Row = dict[Any, Any]
Columns = dict[str, Callable[[Row], str]]  # heading and what a row says under it


@dataclass(frozen=True)
class Comparison:
    """The four tables, the runs they are made of, and in words what they rest on and what was left out."""

    names: list[str]
    basis: list[str]
    runs: pd.DataFrame
    speedups: pd.DataFrame
    times: pd.DataFrame
    regrets: pd.DataFrame
    accuracies: pd.DataFrame
    left_out: list[str]


def compare(experiments: Sequence[Results], accuracy: float | None = None) -> Comparison:
    """Compare the schemes of one or several experiments; `accuracy` is the target where no budget asks for one."""
    runs, left_out = merge(experiments)
    table = per_run(runs, accuracy)
    kept = {id(run) for run in runs}
    basis = [_basis(results, [run for run in results.runs if id(run) in kept]) for results in experiments]
    left_out += [f"Not valid: {run.folder}: {'; '.join(run.invalid_reasons)}." for run in runs if not run.valid]
    left_out += [f"Missing: {results.folder / slug}." for results in experiments for slug in [*results.missing, *results.unreadable]]
    reached = times(table)
    names = list(dict.fromkeys(results.name for results in experiments))
    return Comparison(names, basis, table, speedups(table), reached, regrets(reached), accuracies(table), left_out)


def of_cell(found: Comparison, cell_key: str) -> Comparison:
    """Return the tables of one cell alone."""
    tables = ("runs", "speedups", "times", "regrets", "accuracies")
    mine = {name: table[table["cell_key"] == cell_key] for name in tables if len(table := getattr(found, name))}
    return replace(found, **mine)


def merge(experiments: Sequence[Results]) -> tuple[list[Run], list[str]]:
    """Return the runs that can stand side by side, and in words those that cannot.

    Of runs with the same scheme, workload, cell and seed the first folder's stays. A cell's first run sets what was tested
    (topology, model, transport, ...); runs of the same cell that tested something else are left out.
    """
    kept: dict[tuple[str, ...], Run] = {}
    firsts: dict[tuple[str, ...], Run] = {}
    notes: list[str] = []
    for results in experiments:
        twice: list[str] = []
        for run in results.runs:
            group = (run.workload, _cell_key(run))
            key = (*group, run.scheme, str(_seed(run)))
            first = firsts.setdefault(group, run)
            other = differing(run, first)
            if key in kept:
                twice.append(run.slug)
            elif other:
                notes.append(f"Not comparable: {run.folder} has another {', '.join(other)} than {first.folder}.")
            else:
                kept[key] = run
        if twice:
            notes.append(f"Twice, an earlier folder's are used: of {results.folder}, {', '.join(twice)}.")
    return list(kept.values()), notes


def per_run(runs: list[Run], accuracy: float | None = None) -> pd.DataFrame:
    """Return one row a run: what the four tables are made of."""
    table = pd.DataFrame([_row(run) for run in runs])
    table[["target", "time_s"]] = metrics.NAN
    table["target_from"] = ""
    for _, group in table[table["workload"] == "train"].groupby("cell_key", sort=False):
        finals = group.loc[group["valid"] & (group["scheme"] == BASELINE), "final_accuracy"]
        target, source = _target([runs[index] for index in group.index], finals.tolist(), accuracy)
        for index in group.index[group["valid"]]:
            table.loc[index, "time_s"] = metrics.time_to_accuracy_s(runs[index].evals, target)
        table.loc[group.index, "target"], table.loc[group.index, "target_from"] = target, source
    return table


def speedups(table: pd.DataFrame) -> pd.DataFrame:
    """Return each scheme's throughput over that of `none` with the same seed: mean and Student interval over the seeds."""
    rows = []
    for head, own, none in _by_scheme(table):
        if head["scheme"] == BASELINE:
            continue
        ratios = (own["throughput_samples_s"] / none["throughput_samples_s"]).reindex(own.index).dropna()
        interval = metrics.repeats_interval(ratios.tolist())
        means = [frame.loc[ratios.index, "throughput_samples_s"].mean() for frame in (own, none)]
        above = interval.low > ABOVE if interval.method else None
        row = (len(ratios), len(own) - len(ratios), *means, ratios.mean(), interval.low, interval.high, above)
        rows.append(head | dict(zip(SPEEDUPS, row, strict=True)))
    return pd.DataFrame(rows, columns=[*HEAD, *SPEEDUPS])


def times(table: pd.DataFrame) -> pd.DataFrame:
    """Return each scheme's median time to the target; a seed that did not reach it counts as later than any that did."""
    rows = []
    for head, own, none in _by_scheme(table[table["workload"] == "train"]):
        row: Row = {"seeds": len(own), "median_s": metrics.NAN}
        if not math.isnan(head["target"]):
            taken, others = own["time_s"].fillna(math.inf), none["time_s"].fillna(math.inf)
            pairs = own.index.intersection(none.index) if head["scheme"] != BASELINE else own.index[:0]
            middle_s = float(taken.median())
            row |= {"reached": int(own["time_s"].notna().sum()), "median_s": middle_s if math.isfinite(middle_s) else metrics.NAN}
            row |= {"pairs": len(pairs), "shorter": int((taken[pairs] < others[pairs]).sum())}
        rows.append(head | row)
    return pd.DataFrame(rows, columns=[*HEAD, *TIMES]).astype({"reached": "Int64", "pairs": "Int64", "shorter": "Int64"})


def regrets(reached: pd.DataFrame) -> pd.DataFrame:
    """Return how much longer each adaptive scheme took than the oracle: the fixed ratio that took least, of those that always got there."""
    rows = []
    for _, cell in reached.groupby("cell_key", sort=False):
        fixed = cell[cell["scheme"].str.startswith(FIXED)]
        always = (fixed["seeds"] > 0) & (fixed["reached"] == fixed["seeds"]).fillna(False)
        candidates = fixed[always].sort_values("median_s", kind="stable")
        oracle: Row = candidates.iloc[0].to_dict() if len(candidates) else {}
        best_s = float(oracle.get("median_s", metrics.NAN))
        common: Row = {"oracle": oracle.get("scheme", ""), "oracle_s": best_s, "oracle_seeds": oracle.get("seeds", 0)}
        common |= {"candidates": ", ".join(fixed.loc[always, "scheme"]), "excluded": ", ".join(fixed.loc[~always, "scheme"])}
        for row in cell[cell["adaptive"] & ~cell["scheme"].str.startswith(FIXED)].to_dict("records"):
            rows.append(row | common | {"regret": row["median_s"] / best_s - 1 if best_s > 0 else metrics.NAN})
    return pd.DataFrame(rows, columns=[*HEAD, *REGRETS])


def accuracies(table: pd.DataFrame) -> pd.DataFrame:
    """Return each scheme's final accuracy after as many steps as `none` made; runs with another number of steps are left out."""
    rows = []
    for head, own, none in _by_scheme(table[table["workload"] == "train"]):
        steps = head["reference_steps"]
        finals, others = (frame.loc[frame["steps"] == steps, "final_accuracy"].dropna() for frame in (own, none))
        gaps = 100 * (finals - others).reindex(finals.index).dropna() if head["scheme"] != BASELINE else finals[:0]
        row = {"steps": steps, "seeds": len(finals), "mean": finals.mean(), "min": finals.min(), "max": finals.max(), "pairs": len(gaps)}
        row |= dict(zip(GAPS, (gaps.mean(), gaps.min(), gaps.max()), strict=True))
        row |= {"other_steps": sorted(int(other) for other in own["steps"] if other != steps)}
        rows.append(head | row | {"no_final": int((own["steps"] == steps).sum()) - len(finals)})
    return pd.DataFrame(rows, columns=[*HEAD, *ACCURACIES])


def markdown(found: Comparison) -> str:
    """Return the comparison as Markdown."""
    parts = [f"# Comparison: {', '.join(found.names)}", *found.basis]
    parts += ["## Throughput over `none`", _THROUGHPUT_NOTE, _table(found.speedups, _SPEEDUP_COLUMNS, "No scheme beside `none` was run.")]
    parts += ["## Time to accuracy", _TIME_NOTE, *_targets(found.times), _table(found.times, _TIME_COLUMNS, "Nothing was trained.")]
    parts += ["## Regret of adaptive schemes", _REGRET_NOTE, _table(found.regrets, _REGRET_COLUMNS, "No adaptive scheme was trained.")]
    parts += ["## Accuracy at equal steps", _ACCURACY_NOTE, _table(found.accuracies, _ACCURACY_COLUMNS, "Nothing was trained.")]
    parts += ["## Left out", "\n".join(f"- {note}" for note in found.left_out) or "Nothing."]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison of the given folders, or write it to a file; 2 if a folder cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m analysis.compare", description="Compare schemes with `none`, seed by seed.")
    parser.add_argument("results", nargs="+", type=Path, help="results folders; of runs that appear twice the first folder's is used")
    parser.add_argument("--accuracy", type=_fraction, help="the target of time to accuracy, such as 0.75, where no budget asks for one")
    parser.add_argument("--out", type=Path, help="write to this file instead of the screen")
    options = parser.parse_args(arguments)
    try:
        text = markdown(compare([load(folder) for folder in options.results], options.accuracy))
        print(_write(text, options.out) if options.out else text, end="")
    except ResultsError as error:
        print(error, file=sys.stderr)
        return BAD_INPUT
    return 0


def _write(text: str, path: Path) -> str:
    try:
        path.write_text(text)
    except OSError as error:
        raise ResultsError(f"{path} cannot be written ({error.strerror}). Give --out a file in a folder that exists.") from error
    return f"comparison: {path}\n"


def _row(run: Run) -> Row:
    steps, evals = run.steps, run.evals  # before `valid` is asked: reading may find damage
    return {
        "cell_key": _cell_key(run),
        "cell": cell_words(_cell(run)),
        "workload": run.workload,
        "scheme": run.scheme,
        "label": run.label,
        "seed": _seed(run),
        "valid": run.valid,
        "adaptive": metrics.is_adaptive(steps),
        "steps": metrics.step_count(steps),
        "throughput_samples_s": metrics.throughput_samples_s(steps),
        "final_accuracy": metrics.final_accuracy(evals),
    }


def _by_scheme(table: pd.DataFrame) -> Iterator[tuple[Row, pd.DataFrame, pd.DataFrame]]:
    """Yield for each cell, workload and scheme the head of its row, and its valid runs and those of `none` by seed."""
    for _, group in table.groupby(["cell_key", "workload"], sort=False):
        good = group[group["valid"]].set_index("seed")
        none = good[good["scheme"] == BASELINE]
        counts = (none if len(none) else good)["steps"].mode()  # in ascending order
        for scheme, runs in group.groupby("scheme", sort=False):
            head: Row = {column: runs[column].iloc[0] for column in (*HEAD[:5], "target", "target_from")}
            head |= {"runs": len(runs), "invalid": int((~runs["valid"]).sum()), "adaptive": bool(runs["adaptive"].any())}
            yield head | {"reference_steps": int(counts.iloc[-1]) if len(counts) else 0}, good[good["scheme"] == scheme], none


def _target(runs: list[Run], none_finals: list[float], given: float | None) -> tuple[float, str]:
    """Return the accuracy to reach in a cell and where it comes from: the budget, the caller, the workload, `none`."""
    budgets, wanted = (
        sorted({value for run in runs if not math.isnan(value := number(dig(run.manifest, "spec", "workload", *keys)))})
        for keys in (("budget", "accuracy"), ("target_accuracy",))
    )
    if budgets:
        source = "asked by the budget" + (f", the lowest of {len(budgets)}" if len(budgets) > 1 else "")
        return budgets[0], source + (f"; the given {given:g} was not used" if given not in (None, budgets[0]) else "")
    if given is not None:
        return given, "given"
    if wanted:
        return wanted[0], "asked by the workload" + (f", the lowest of {len(wanted)}" if len(wanted) > 1 else "")
    return metrics.target_accuracy(None, none_finals), f"{metrics.TARGET_FRACTION:g} of the best final accuracy of `none`"


def _basis(results: Results, runs: list[Run]) -> str:
    """Say what the runs of a folder rest on."""
    networks = dict.fromkeys(network_words(run) for run in runs)
    said = small_print(results, runs)[1:] if runs else []  # its first sentence is ours, in the words of a figure
    return " ".join([f"`{results.folder}`: {'; '.join(networks) or 'no run is used'}.", *said, *results.problems])


def _cell(run: Run) -> dict[str, Any]:
    """Return the run's cell; a swept workload belongs to it if its kind alone does not tell it from others."""
    swept = {key: value for key, value in (run.manifest.get("cell") or {}).items() if key in WORKLOAD_FIELDS and value != run.workload}
    return run.cell | swept


def _cell_key(run: Run) -> str:
    return json.dumps(_cell(run), sort_keys=True, default=str)


def _seed(run: Run) -> int:
    """Return the run's seed; the number of its repeat where the manifest has none."""
    seed = run.manifest.get("seed")
    return seed if isinstance(seed, int) else run.repeat


def _fraction(text: str) -> float:
    try:
        if 0 < float(text) <= 1:
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text} is not a number between 0 and 1: write 0.75 for 75 %")


_THROUGHPUT_NOTE = (
    "Ratio: the scheme's samples/s over those of `none` with the same seed; mean and 95 % Student interval over these pairs. "
    "Samples/s are means over the same pairs."
)
_TIME_NOTE = (
    "Training clock at the first evaluation at or above the target, so no finer than the time between evaluations. A seed that did "
    "not reach it counts as later than any that did; without a median, half of the seeds or more did not."
)
_REGRET_NOTE = (
    f"Oracle: the fixed ratio (`{FIXED}`) with the shortest median time, of those that reached the target in every seed. "
    "Regret: median time / the oracle's - 1. It is only as good as the ratios that were tried."
)
_ACCURACY_NOTE = (
    "Final accuracy on the full test set in %. Difference: points to `none` with the same seed, mean (least to most). Runs with another "
    "number of steps than `none` (than most, where there is no `none`) are left out."
)


def _say(value: float, form: str, scale: float = 1.0) -> str:
    return "-" if math.isnan(value) else format(scale * value, form)


def _range(row: Row, form: str, low: str, high: str, scale: float = 1.0) -> str:
    return "-" if pd.isna(row[low]) else f"{_say(row[low], form, scale)} to {_say(row[high], form, scale)}"


def _left_out(row: Row) -> str:
    other = row.get("other_steps") or []
    parts = [f"{row['invalid']} of {row['runs']} invalid"] if row["invalid"] else []
    parts += [f"{row['unpaired']} without a valid `none`"] if row.get("unpaired") else []
    parts += [f"{len(other)} of {row['runs']} with other steps ({', '.join(map(str, other))})"] if other else []
    parts += [f"{row['no_final']} of {row['runs']} without a final evaluation"] if row.get("no_final") else []
    return ", ".join(parts)


def _above(row: Row) -> str:
    return "no interval" if pd.isna(row["above"]) else "yes" if row["above"] else "no"


def _reached(row: Row) -> str:
    return "-" if pd.isna(row["reached"]) else f"{row['reached']} of {row['seeds']}"


def _shorter(row: Row) -> str:
    if pd.isna(row["pairs"]) or not row["pairs"]:
        return "-"
    return f"{'yes' if row['shorter'] == row['pairs'] else 'no'} ({row['shorter']} of {row['pairs']})"


def _difference(row: Row) -> str:
    return f"{row['difference_points']:+.1f} ({_range(row, '+.1f', 'difference_min', 'difference_max')})" if row["pairs"] else "-"


def _targets(reached: pd.DataFrame) -> list[str]:
    """Say the target of each cell, or why there is none."""
    lines = []
    for row in reached.drop_duplicates("cell_key").to_dict("records"):
        where = f" at {row['cell']}" if row["cell"] else ""
        said = f"Target{where}: {row['target']:.4g} ({row['target_from']})."
        lines.append(f"No target{where}: no valid run of `none`." if math.isnan(row["target"]) else said)
    return lines


def _table(frame: pd.DataFrame, columns: Columns, otherwise: str) -> str:
    """Return a Markdown table; a column that is empty in every row is not shown."""
    rows = [[text(row) for text in columns.values()] for row in frame.to_dict("records")]
    if not rows:
        return otherwise
    shown = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    lines = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line[place] for place in shown) + " |" for line in lines)


_NAMES: Columns = {"cell": lambda row: str(row["cell"]), "scheme": lambda row: str(row["scheme"])}
_REACHING: Columns = {"seeds that reached it": _reached, "median, s": lambda row: _say(row["median_s"], ".1f")}
_SPEEDUP_COLUMNS: Columns = {
    "workload": lambda row: str(row["workload"]),
    **_NAMES,
    "repeats": lambda row: str(row["pairs"]),
    "samples/s": lambda row: _say(row["throughput_samples_s"], ".1f"),
    "`none`, samples/s": lambda row: _say(row["none_samples_s"], ".1f"),
    "ratio": lambda row: _say(row["ratio"], ".2f"),
    "95 % interval": lambda row: _range(row, ".2f", "low", "high"),
    f"interval above {ABOVE:g}": _above,
    "left out": _left_out,
}
_TIME_COLUMNS: Columns = {**_NAMES, **_REACHING, "shorter than `none` in every pair": _shorter, "left out": _left_out}
_REGRET_COLUMNS: Columns = {
    **_NAMES,
    **_REACHING,
    "oracle": lambda row: f"{row['oracle']} ({row['oracle_seeds']} seed{'s' * (row['oracle_seeds'] > 1)})" if row["oracle"] else "-",
    "oracle's median, s": lambda row: _say(row["oracle_s"], ".1f"),
    "regret": lambda row: _say(row["regret"], "+.0f", 100) + (" %" if not pd.isna(row["regret"]) else ""),
    "candidates": lambda row: row["candidates"] or "-",
    "not candidates": lambda row: row["excluded"] or "-",
    "left out": _left_out,
}
_ACCURACY_COLUMNS: Columns = {
    **_NAMES,
    "steps": lambda row: str(row["steps"]),
    "seeds": lambda row: str(row["seeds"]),
    "mean, %": lambda row: _say(row["mean"], ".1f", 100),
    "range, %": lambda row: _range(row, ".1f", "min", "max", 100),
    "difference, points": _difference,
    "left out": _left_out,
}

if __name__ == "__main__":
    sys.exit(main())
