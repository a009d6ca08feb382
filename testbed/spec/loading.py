"""Load an experiment file: every problem found at once, each with its file, line and field.

`load` validates the file and every cell of its sweep before anything starts; `resolved` is what the manifest keeps.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.spec.backends import NOT_APPLIED
from testbed.spec.document import Document, read
from testbed.spec.errors import dotted, field_paths, problems, suggestion
from testbed.spec.fields import Place
from testbed.spec.models import Experiment, resolve_scheme

Resolver = Callable[[Any], Any]
Cell = dict[str, int]  # swept field -> index into its list of values
NOT_SWEPT = {"name", "description", "schemes", "sweep", "repeats"}  # what an experiment is, not what a run varies


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an experiment."""

    source: str
    line: int  # 0: the file as a whole
    path: str  # dotted; empty for the file as a whole
    message: str

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (where, self.path, self.message) if part)


class SpecError(ValueError):
    """An experiment file that cannot be used; `problems` lists everything that is wrong with it."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(dict.fromkeys(sorted(problems, key=lambda p: p.line)))
        super().__init__("\n".join(map(str, self.problems)))


def load(path: str | Path, resolve: Resolver = resolve_scheme) -> Experiment:
    """Read and validate an experiment file and every cell of its sweep."""
    return _checked(read(Path(path)), str(path), resolve, Path(path).parent)


def from_mapping(data: Mapping[str, Any], source: str = "experiment", resolve: Resolver = resolve_scheme) -> Experiment:
    """Validate plain data written as in an experiment file; its problems carry no line, and its traces are in the working directory."""
    return _checked(Document(dict(data), {(): 0}), source, resolve, Path())


def variants(experiment: Experiment, resolve: Resolver = resolve_scheme) -> Iterator[tuple[Cell, Experiment]]:
    """Yield each cell of the sweep with the experiment it makes, its own sweep empty."""
    data = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for cell in _cells(experiment.sweep):
        made = {**_with_cell(data, experiment.sweep, cell), "sweep": {}}
        yield cell, _validated(made, resolve, experiment.folder, experiment.among_dilated)


def resolved(experiment: Experiment, resolve: Resolver = resolve_scheme) -> dict[str, Any]:
    """Return the experiment as plain JSON-able data in SI units, defaults filled in, both directions of each link spelt out."""
    spec = {**experiment.model_dump(), **NOT_APPLIED.get(experiment.backend, {})}
    spec["topology"] = experiment.topology.resolved()
    spec["dilation"] = experiment.dilation
    del spec["asked_dilation"]
    if spec["transport"]:
        spec["transport"]["congestion_control"] = experiment.congestion_control
    spec["workload"] = experiment.workload.to_job()
    spec["conditions"] = [condition.model_dump(exclude_none=True) for condition in experiment.conditions]
    schemes = [resolve(entry) for entry in experiment.schemes]
    spec["schemes"] = [{"name": s.name, "label": s.label, "slug": s.slug, "params": dict(s.params)} for s in schemes]
    return dict(json.loads(json.dumps(spec, default=str)))


def unsupported(experiment: Experiment, resolve: Resolver = resolve_scheme) -> list[str]:
    """Say what this experiment, in any cell of its sweep, asks for that the testbed cannot do yet."""
    sentences: list[str] = []
    for _, variant in variants(experiment, resolve):
        if variant.backend == "simulated":
            sentences.append("backend: simulated is not supported yet; use emulated")
        if variant.transport.ecn:
            sentences.append("transport: ecn needs queues that mark, and these only drop; leave it false")
        for scheme in map(resolve, variant.schemes) if variant.dilation > 1 else ():
            if not scheme.dilates:
                sentences.append(f"dilation: {scheme.slug} computes where it cannot be slowed down with the rest; leave out one of the two")
    return list(dict.fromkeys(sentences))


def _checked(document: Document, source: str, resolve: Resolver, folder: Path) -> Experiment:
    """Validate the document and each sweep cell; raise every problem at once."""
    found = [Problem(source, line, dotted(place), message) for line, place, message in document.faults]
    data = document.data
    if not isinstance(data, dict):
        raise SpecError(found)

    def check(variant: dict[str, Any], cell: Cell, known: set[tuple[Place, str]], aside: str = "") -> Experiment | None:
        try:
            return _validated(variant, resolve, folder)
        except ValidationError as error:
            for place, message in problems(error, Experiment):
                if (place, message) not in known:
                    known.add((place, message))
                    in_file = _in_sweep(place, cell)
                    where = aside if in_file == place else ""
                    found.append(Problem(source, document.line(in_file), dotted(in_file), message + where))
        return None

    sweep: dict[str, list[Any]] = {}
    for field, values in _mapping(data.get("sweep")).items():
        fault = _fault_of_swept(field, data, _mapping(data["sweep"]))
        if fault:
            found.append(Problem(source, document.line(("sweep", field)), dotted(("sweep", field)), fault))
        elif isinstance(values, list) and values:
            sweep[field] = values

    # A swept field need not be given outside the sweep: its first value then stands there.
    missing = {field: 0 for field in sweep if not _has(data, field)}
    base = _with_cell(data, sweep, missing)
    in_base: set[tuple[Place, str]] = set()
    experiment = check(base, missing, in_base)
    seen: dict[str, Cell] = {}
    among_dilated = False
    for cell in _cells(sweep) if sweep else []:
        # Problems outside the swept fields were told of the base; within them the base says nothing about this value.
        known = {(place, message) for place, message in in_base if _in_sweep(place, cell) == place}
        made = check({**_with_cell(base, sweep, cell), "sweep": {}}, cell, known, f" (in the cell {_written(sweep, cell)})")
        if made is not None:
            among_dilated |= made.dilation > 1
            twin = seen.setdefault(json.dumps(made.model_dump(), default=str, sort_keys=True), cell)
            for name in [f for f in cell if cell[f] != twin[f]][:1]:
                place = ("sweep", name, cell[name])
                same = sweep[name][twin[name]]
                found.append(Problem(source, document.line(place), dotted(place), f"makes the same runs as {same!r} in the same list"))
    if found or experiment is None:
        raise SpecError(found)
    return _validated(base, resolve, folder, among_dilated)


def _validated(data: dict[str, Any], resolve: Resolver, folder: Path, among_dilated: bool = False) -> Experiment:
    context = {"resolve_scheme": resolve, "folder": folder, "among_dilated": among_dilated}
    return Experiment.model_validate(data, context=context)


def _cells(sweep: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield the cartesian product of the sweep, the last field varying fastest; without a sweep, one empty cell."""
    for indices in itertools.product(*(range(len(values)) for values in sweep.values())):
        yield dict(zip(sweep, indices, strict=True))


def _with_cell(data: dict[str, Any], sweep: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Put a cell's values in: whole mappings before the fields inside them."""
    for field in sorted(cell, key=lambda field: field.count(".")):
        data = put(data, field.split("."), sweep[field][cell[field]])
    return data


def put(data: object, path: list[str], value: object) -> dict[str, Any]:
    """Return the mapping with another value under a path of keys."""
    mapping = _mapping(data)
    return {**mapping, path[0]: put(mapping.get(path[0]), path[1:], value) if len(path) > 1 else value}


def _mapping(data: object) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}


def _has(data: object, field: str) -> bool:
    for key in field.split("."):
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _fault_of_swept(field: str, data: dict[str, Any], sweep: dict[str, Any]) -> str | None:
    """Tell why a field cannot be swept. A field is known if the base, or any swept mapping around it, knows it."""
    if field in NOT_SWEPT:
        return "cannot be swept; " + ("schemes are compared in every cell already" if field == "schemes" else "it names or repeats runs")
    around = [outer for outer in sweep if field.startswith(f"{outer}.") and isinstance(sweep[outer], list)]
    bases = [data] + [put(data, outer.split("."), value) for outer in around for value in sweep[outer]]
    valid = list(dict.fromkeys(path for base in bases for path in field_paths(Experiment, base) if path not in NOT_SWEPT))
    if field in valid:
        return None
    tops = [path for path in valid if "." not in path]
    return f"unknown field; {suggestion(field, valid, 'give a dotted path, such as topology.workers, below one of', tops)}"


def _in_sweep(place: Place, cell: Cell) -> Place:
    """Return where in the file a place's value comes from: the sweep, if a swept field holds it."""
    for field in sorted(cell, key=len, reverse=True):
        path = tuple(field.split("."))
        if place[: len(path)] == path:
            return ("sweep", field, cell[field], *place[len(path) :])
    return place


def _written(sweep: Mapping[str, Any], cell: Cell) -> str:
    return ", ".join(f"{field}: {sweep[field][index]}" for field, index in cell.items())
