"""Compare schemes seed by seed: how much faster, how soon accurate, how far from the best fixed ratio, at what cost in accuracy.

Runs of the same seed are pairs: they see the same data in the same order. Runs that are not valid are left out and counted.
A value that cannot be had is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd

from analysis import metrics
from analysis.adaptive import adaptive_schemes
from analysis.load import Results, Run, dig
from analysis.mixed import tested_otherwise
from analysis.summary import BASELINE, number
from analysis.words import cell_words, network_words, small_print

FIXED = "topk-"  # the schemes among which the oracle is sought
ABOVE = 2.0  # the speed-up that the interval is held against
HEAD = ["cell_key", "cell", "workload", "scheme", "label", "runs", "invalid"]
SPEEDUPS = ["pairs", "unpaired", "throughput_samples_s", "none_samples_s", "ratio", "low", "high", "above"]
TIMES = ["target", "target_from", "adaptive", "seeds", "reached", "median_s", "pairs", "shorter"]
REGRETS = ["target", "seeds", "reached", "median_s", "oracle", "oracle_s", "oracle_seeds", "candidates", "excluded", "regret"]
GAPS = ["difference_points", "difference_min", "difference_max"]
ACCURACIES = ["steps", "seeds", "mean", "min", "max", "pairs", *GAPS, "other_steps", "no_final"]
Row = dict[Any, Any]


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


class Line(NamedTuple):
    """A scheme in one cell and workload: the head of its rows, its valid runs and those of `none`, by seed."""

    head: Row
    own: pd.DataFrame
    none: pd.DataFrame


def compare(experiments: Sequence[Results], accuracy: float | None = None) -> Comparison:
    """Compare the schemes of one or several experiments; `accuracy` is the target where no budget asks for one."""
    runs, left_out = merge(experiments)
    table = per_run(runs, accuracy)
    kept = {id(run) for run in runs}
    basis = [_basis(results, [run for run in results.runs if id(run) in kept]) for results in experiments]
    left_out += [f"Not valid: {run.folder}: {'; '.join(run.invalid_reasons)}." for run in runs if not run.valid]
    left_out += [f"Missing: {results.folder / slug}." for results in experiments for slug in [*results.missing, *results.unreadable]]
    lines = list(_by_scheme(table))
    trained = [line for line in lines if line.head["workload"] == "train"]
    reached = times(trained)
    names = list(dict.fromkeys(results.name for results in experiments))
    return Comparison(names, basis, table, speedups(lines), reached, regrets(reached), accuracies(trained), left_out)


def of_cell(found: Comparison, cell_key: str) -> Comparison:
    """Return the tables of one cell alone."""
    tables = ("runs", "speedups", "times", "regrets", "accuracies")
    mine = {name: table[table["cell_key"] == cell_key] for name in tables if len(table := getattr(found, name))}
    return replace(found, **mine)


def merge(experiments: Sequence[Results]) -> tuple[list[Run], list[str]]:
    """Return the runs that can stand side by side, and in words those that cannot.

    Of runs with the same scheme, workload, cell and seed the first folder's stays. Runs that stand apart in their own folder are left
    out. Of the others a cell's first run sets what was tested (topology, model, transport, ...); those that tested something else are
    left out too.
    """
    kept: dict[tuple[str, ...], Run] = {}
    notes = [f"Not comparable: {results.folder / slug} {why}." for results in experiments for slug, why in results.apart.items()]
    every = [run for results in experiments for run in results.compared.runs]
    odd = {run.folder: (first, parts) for run, first, parts in tested_otherwise(every)}
    for results in experiments:
        twice: list[str] = []
        for run in results.compared.runs:
            key = (run.workload, run.cell_key, run.scheme, str(_seed(run)))
            if key in kept:
                twice.append(run.slug)
            elif run.folder in odd:
                first, parts = odd[run.folder]
                notes.append(f"Not comparable: {run.folder} has another {', '.join(parts)} than {first.folder}.")
            else:
                kept[key] = run
        if twice:
            notes.append(f"Twice, an earlier folder's are used: of {results.folder}, {', '.join(twice)}.")
    return list(kept.values()), notes


def per_run(runs: list[Run], accuracy: float | None = None) -> pd.DataFrame:
    """Return one row a run: what the four tables are made of."""
    table = pd.DataFrame([_row(run) for run in runs])
    table["adaptive"] = table["scheme"].isin(adaptive_schemes(runs))
    table[["target", "time_s"]] = metrics.NAN
    table["target_from"] = ""
    for _, group in table[table["workload"] == "train"].groupby("cell_key", sort=False):
        finals = group.loc[group["valid"] & (group["scheme"] == BASELINE), "final_accuracy"]
        target, source = _target([runs[index] for index in group.index], finals.tolist(), accuracy)
        for index in group.index[group["valid"]]:
            table.loc[index, "time_s"] = metrics.time_to_accuracy_s(runs[index].timed_evals, target)
        table.loc[group.index, "target"], table.loc[group.index, "target_from"] = target, source
    return table


def speedups(lines: Sequence[Line]) -> pd.DataFrame:
    """Return each scheme's throughput over that of `none` with the same seed: mean and Student interval over the seeds."""
    rows = []
    for head, own, none in lines:
        if head["scheme"] == BASELINE:
            continue
        ratios = (own["throughput_samples_s"] / none["throughput_samples_s"]).reindex(own.index).dropna()
        interval = metrics.repeats_interval(ratios.tolist())
        means = [frame.loc[ratios.index, "throughput_samples_s"].mean() for frame in (own, none)]
        above = interval.low > ABOVE if interval.method else None
        row = (len(ratios), len(own) - len(ratios), *means, ratios.mean(), interval.low, interval.high, above)
        rows.append(head | dict(zip(SPEEDUPS, row, strict=True)))
    return pd.DataFrame(rows, columns=[*HEAD, *SPEEDUPS])


def times(lines: Sequence[Line]) -> pd.DataFrame:
    """Return each scheme's median time to the target; a seed that did not reach it counts as later than any that did."""
    rows = []
    for head, own, none in lines:
        row: Row = {"seeds": len(own), "median_s": metrics.NAN}
        if not math.isnan(head["target"]):
            taken, others = own["time_s"].fillna(math.inf), none["time_s"].fillna(math.inf)
            pairs = own.index.intersection(none.index) if head["scheme"] != BASELINE else own.index[:0]
            row |= {"reached": int(own["time_s"].notna().sum()), "median_s": metrics.median_time_s(own["time_s"])}
            row |= {"pairs": len(pairs), "shorter": int((taken[pairs] < others[pairs]).sum())}
        rows.append(head | row)
    return pd.DataFrame(rows, columns=[*HEAD, *TIMES]).astype({"reached": "Int64", "pairs": "Int64", "shorter": "Int64"})


def regrets(reached: pd.DataFrame) -> pd.DataFrame:
    """Return how much longer each adaptive scheme took than the oracle: the fixed ratio of the least median time.

    A fixed ratio that has fewer valid seeds than the adaptive schemes may have been lucky, and is none where another has as many.
    """
    rows = []
    for _, cell in reached.groupby("cell_key", sort=False):
        fixed = cell[cell["scheme"].str.startswith(FIXED)]
        adaptive = cell[cell["adaptive"] & ~cell["scheme"].str.startswith(FIXED)]
        enough = min(adaptive["seeds"].max(), fixed["seeds"].max()) if len(adaptive) and len(fixed) else 0
        fit = fixed["median_s"].notna() & (fixed["seeds"] >= enough)
        candidates = fixed[fit].sort_values("median_s", kind="stable")
        oracle: Row = candidates.iloc[0].to_dict() if len(candidates) else {}
        best_s = float(oracle.get("median_s", metrics.NAN))
        common: Row = {"oracle": oracle.get("scheme", ""), "oracle_s": best_s, "oracle_seeds": oracle.get("seeds", 0)}
        common |= {"candidates": ", ".join(fixed.loc[fit, "scheme"]), "excluded": ", ".join(fixed.loc[~fit, "scheme"])}
        for row in adaptive.to_dict("records"):
            rows.append(row | common | {"regret": row["median_s"] / best_s - 1 if best_s > 0 else metrics.NAN})
    return pd.DataFrame(rows, columns=[*HEAD, *REGRETS])


def accuracies(lines: Sequence[Line]) -> pd.DataFrame:
    """Return each scheme's final accuracy after as many steps as `none` made; runs with another number of steps are left out."""
    rows = []
    for head, own, none in lines:
        steps = head["reference_steps"]
        finals, others = (frame.loc[frame["steps"] == steps, "final_accuracy"].dropna() for frame in (own, none))
        gaps = 100 * (finals - others).reindex(finals.index).dropna() if head["scheme"] != BASELINE else finals[:0]
        row = {"steps": steps, "seeds": len(finals), "mean": finals.mean(), "min": finals.min(), "max": finals.max(), "pairs": len(gaps)}
        row |= dict(zip(GAPS, (gaps.mean(), gaps.min(), gaps.max()), strict=True))
        row |= {"other_steps": sorted(int(other) for other in own["steps"] if other != steps)}
        rows.append(head | row | {"no_final": int((own["steps"] == steps).sum()) - len(finals)})
    return pd.DataFrame(rows, columns=[*HEAD, *ACCURACIES])


def _row(run: Run) -> Row:
    steps, evals = run.steps, run.evals  # before `valid` is asked: reading may find damage
    return {
        "cell_key": run.cell_key,
        "cell": cell_words(run.cell),
        "workload": run.workload,
        "scheme": run.scheme,
        "label": run.label,
        "seed": _seed(run),
        "valid": run.valid,
        "steps": metrics.step_count(steps),
        "throughput_samples_s": metrics.throughput_samples_s(steps),
        "final_accuracy": metrics.final_accuracy(evals),
    }


def _by_scheme(table: pd.DataFrame) -> Iterator[Line]:
    """Yield what is known of each cell, workload and scheme."""
    for _, group in table.groupby(["cell_key", "workload"], sort=False):
        good = group[group["valid"]].set_index("seed")
        none = good[good["scheme"] == BASELINE]
        counts = (none if len(none) else good)["steps"].mode()  # in ascending order
        for scheme, runs in group.groupby("scheme", sort=False):
            head: Row = {column: runs[column].iloc[0] for column in (*HEAD[:5], "target", "target_from")}
            head |= {"runs": len(runs), "invalid": int((~runs["valid"]).sum()), "adaptive": bool(runs["adaptive"].any())}
            head |= {"reference_steps": int(counts.iloc[-1]) if len(counts) else 0}
            yield Line(head, good[good["scheme"] == scheme], none)


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


def _seed(run: Run) -> int:
    """Return the run's seed; the number of its repeat where the manifest has none."""
    seed = run.manifest.get("seed")
    return seed if isinstance(seed, int) else run.repeat
