"""Answer what a reviewer asks of a comparison: how much faster, how soon accurate, how far from the best ratio, at what cost in accuracy.

    python -m analysis.compare RESULTS [RESULTS ...] [--accuracy 0.75] [--out FILE]

What is compared with what is in `pairs`; here it is told as Markdown. A value that cannot be had is printed as "-".
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from analysis.errors import ResultsError
from analysis.load import load
from analysis.pairs import ABOVE, FIXED, Comparison, Row, compare

BAD_INPUT = 2
Columns = dict[str, Callable[[Row], str]]  # heading and what a row says under it

__all__ = ["Comparison", "compare", "main", "markdown"]


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
    f"Oracle: the fixed ratio (`{FIXED}`) with the shortest median time, of those with as many valid seeds as the adaptive schemes. "
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
