"""What a figure's entry says, and how entries are found: every module of this package that defines a `Drawing` adds it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from analysis.load import Results


@dataclass(frozen=True)
class Drawing:
    """One figure, drawn only where the results have what it needs."""

    name: str  # of its files
    title: str
    about: str  # what it shows and how to read it, a sentence or two for a report
    place: int  # among the figures of a report, the least first
    reason: Callable[[Results], str | None]  # why there is nothing to draw, or None
    draw: Callable[[Results], Figure | None]


def find(package: str, folders: list[str]) -> dict[str, Drawing]:
    """Return the drawings of all modules of a package by their names, in the order of their places; they see runs that compare only."""
    found: dict[str, Drawing] = {}
    for info in pkgutil.iter_modules(folders):
        for value in vars(importlib.import_module(f"{package}.{info.name}")).values():
            if isinstance(value, Drawing) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"two figures are named {value.name}: one of them needs another name")
    ordered = sorted(found.values(), key=lambda drawing: (drawing.place, drawing.name))
    return {drawing.name: _of_what_compares(drawing) for drawing in ordered}


def _of_what_compares(drawing: Drawing) -> Drawing:
    """Keep runs of another experiment or set-up out of a figure, and out of its medians."""
    return replace(drawing, reason=lambda results: drawing.reason(results.compared), draw=lambda results: drawing.draw(results.compared))
