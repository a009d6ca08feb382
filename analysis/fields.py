"""The swept fields of an experiment in SI units: what each run's resolved spec says under the field's dotted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.load import Results, Run, dig

UNITS = {"_bps": "bit/s", "_s": "s", "_bytes": "B", "_bdp": "BDP"}
# What a resolved spec adds to the name in the file, for results that do not carry it
ENDINGS = {"rate": "_bps", "delay": "_s", "jitter": "_s", "compute": "_s", "eval_every": "_s", "queue": "_bytes", "memory": "_bytes"}


@dataclass(frozen=True)
class Field:
    """One swept field: its path in the file, its name in SI units, and its value in each run that has one."""

    path: str
    column: str
    values: dict[str, Any]  # by the run's folder

    @property
    def unit(self) -> str:
        """Return the unit of its numbers; empty for a plain number."""
        if self.column.endswith("seconds"):
            return "s"
        return next((unit for ending, unit in UNITS.items() if self.column.endswith(ending)), "")

    @property
    def numbers(self) -> list[float]:
        """Return its distinct numbers in order; none if any of its values is not a number."""
        values = list(self.values.values())
        return sorted({float(value) for value in values}) if all(map(_is_number, values)) else []


def swept_fields(results: Results) -> list[Field]:
    """Return the fields of the sweep in its order, but for the workload as a whole."""
    fields = []
    for path in dict.fromkeys(path for run in results.runs for path in run.cell):
        found = {run.slug: _resolved(run, path) for run in results.runs if path in run.cell}
        columns = {column for column, _ in found.values()}
        if len(columns) == 1:
            fields.append(Field(path, columns.pop(), {slug: value for slug, (_, value) in found.items()}))
        else:  # queues in bytes here and in BDPs there: as they were written
            fields.append(Field(path, path, {run.slug: run.cell[path] for run in results.runs if path in run.cell}))
    return fields


def _resolved(run: Run, path: str) -> tuple[str, Any]:
    """Return a field's name and value in SI units; as it was written where the spec has no plain value for it."""
    written = run.cell[path]
    found = _find(dig(run.manifest, "spec"), path.split("."))
    if found is not None:
        return path + found[0], found[1]
    ending = ENDINGS.get(path.rpartition(".")[2], "") if _is_number(written) else ""
    return path + ending, written


def _find(data: Any, parts: list[str]) -> tuple[str, Any] | None:
    """Return what a spec adds to a field's name, and its value. A link is resolved into its two directions."""
    if not isinstance(data, dict):
        return None
    name, *below = parts
    if name not in data and "forward" in data:
        return _find(data.get("backward"), below) if name == "reverse" and below else _find(data["forward"], parts)
    if below:
        return _find(data.get(name), below)
    return next(((e, v) for e in ("", *UNITS) if isinstance(v := data.get(name + e), str | int | float)), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
