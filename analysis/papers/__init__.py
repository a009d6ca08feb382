"""The papers' published claims beside what was measured here. A paper joins with one file: a module that defines a `Paper`."""

from __future__ import annotations

import importlib
import pkgutil

from analysis.papers.claims import Paper, hold
from analysis.papers.table import write

__all__ = ["Paper", "hold", "papers", "write"]


def papers() -> dict[str, Paper]:
    """Return the papers of all modules of this package by their names, in the order of their places."""
    found: dict[str, Paper] = {}
    for info in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{info.name}")).values():
            if isinstance(value, Paper) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"two papers are named {value.name}: one of them needs another name")
    return dict(sorted(found.items(), key=lambda item: (item[1].place, item[0])))
