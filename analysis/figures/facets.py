"""Small multiples: one panel a cell, so that runs on different networks are never mixed."""

from __future__ import annotations

import math
from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.load import Results
from analysis.style import WIDTH_IN, new_figure
from analysis.words import cell_words

MOST = 12  # panels of one figure that can still be read; more cells than that are for the heat maps


def split(results: Results) -> list[tuple[str, Results]]:
    """Return, for each cell, its title and the results restricted to it; a single untitled one without a sweep."""
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(results.runs):
        groups.setdefault(run.cell_key, []).append(index)
    parts = [replace(results, runs=[results.runs[index] for index in members]) for members in groups.values()]
    return [(cell_words(part.runs[0].cell), part) for part in parts]


def grid(count: int, panel_height_in: float, max_columns: int = 3) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels that share their axes; one panel keeps the full width."""
    columns = 2 if count in (2, 4) else min(count, max_columns)
    rows = math.ceil(count / columns)
    figure = new_figure(rows * panel_height_in, WIDTH_IN if columns < 3 else WIDTH_IN * 1.25)
    every = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten().tolist()
    for spare in every[count:]:
        spare.remove()
    for index, axes in enumerate(every[:count]):
        if index + columns >= count:  # the lowest panel of its column
            axes.xaxis.set_tick_params(labelbottom=True)
    return figure, every[:count]


def tidy(axes: list[Axes], limits: list[tuple[float, float]]) -> None:
    """Give panels that share an axis the widest of their limits, and leave axis labels to the outer ones."""
    axes[0].set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
    columns = axes[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    for index, panel in enumerate(axes):
        if index + columns < len(axes):
            panel.set_xlabel("")
        if index % columns:
            panel.set_ylabel("")
