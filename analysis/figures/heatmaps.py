"""Heat maps of a sweep over two numbers: throughput and speed-up of each scheme, and the scheme that wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

from analysis import style, summary, words
from analysis.fields import Field
from analysis.figures import facets
from analysis.figures.registry import Drawing
from analysis.grids import TRUE_WITHIN, Cell, Grid, Win, axes, grids
from analysis.load import Results
from analysis.style import SchemeStyle

NUMBER_PT = 7.5
ROW_IN = 0.42  # a row of a map with one number a cell
WIN_ROW_IN = 0.62
MOST_RIVALS = 2  # named in a cell with the fastest; the others are counted
MOST_GRIDS = 4  # of whatever else was swept; the figure says what it leaves out
NOTHING = "-"
NO_DATA = "#f0f0f0"
LOG_ABOVE = 8.0  # largest over smallest: beyond it, equal ratios are equal steps of colour


@dataclass(frozen=True)
class Heatmap:
    """One kind of map."""

    title: str
    paint: Callable[[Results, list[Grid], pd.DataFrame], tuple[Figure, list[Artist], list[str]]]
    needs: tuple[str, ...] = ()  # schemes it compares with
    least_schemes: int = 1

    def drawing(self, name: str, about: str, place: int) -> Drawing:
        """Return its entry among the figures."""
        return Drawing(name, self.title, about, place, self.reason, self.draw)

    def reason(self, results: Results) -> str | None:
        """Say why there is nothing to draw, or None."""
        if axes(results) is None:
            return "fewer than two numbers are swept"
        if len(results.schemes) < self.least_schemes or not set(self.needs) <= set(results.schemes):
            return f"nothing to compare {'with ' if self.needs else ''}{' and '.join(self.needs)}".strip()
        return None if any(len(run.steps) for run in results.runs) else "no run has a measured step"

    def draw(self, results: Results) -> Figure | None:
        """Draw the map, or None."""
        if self.reason(results):
            return None
        with style.look():
            table = summary.summarise(results)
            every = grids(results, table)
            shown = every[:MOST_GRIDS]
            figure, entries, sentences = self.paint(results, shown, table)
            style.set_title(figure, self.title, entries)
            if len(every) > len(shown):
                sentences.append(f"Shown: the first {len(shown)} of {len(every)} combinations of what else was swept.")
            style.footnote(figure, words.small_print(results, results.runs, ["Cells: medians over repeats.", *sentences]))
        return figure


def _throughput(results: Results, shown: list[Grid], table: pd.DataFrame) -> tuple[Figure, list[Artist], list[str]]:
    panels = [(grid, slug, grid.throughput(slug)) for grid in shown for slug in grid.schemes]
    return _maps(panels, "cividis", "samples/s", _three_digits, None)


def _speedup(results: Results, shown: list[Grid], table: pd.DataFrame) -> tuple[Figure, list[Artist], list[str]]:
    panels = [(grid, slug, grid.speedup(slug)) for grid in shown for slug in grid.schemes if slug != summary.BASELINE]
    figure, entries, sentences = _maps(panels, "PuOr_r", "speed-up", lambda value: f"{value:.2f}x", 1.0)
    for entry in entries:
        if entry.get_label() == "no data":
            entry.set_label("no data, or no valid run without compression")
    return figure, entries, sentences


def _maps(
    panels: list[tuple[Grid, str, dict[tuple[float, float], Cell]]],
    colours: str,
    label: str,
    form: Callable[[float], str],
    middle: float | None,
) -> tuple[Figure, list[Artist], list[str]]:
    """Draw a panel a scheme, all in the same colours; numbers that are not valid have none."""
    cmap = mpl.colormaps[colours]
    norm = _norm([cell.value for _, _, cells in panels for cell in cells.values() if cell.valid], middle)
    wide, high = len(panels[0][0].x.numbers), len(panels[0][0].y.numbers)
    figure, every = facets.grid(len(panels), 0.85 + ROW_IN * high, 3 if wide <= 6 else 2 if wide <= 12 else 1)
    entries: dict[str, Artist] = {}
    for axes_, (grid, slug, cells) in zip(every, panels, strict=True):
        values = np.full((len(grid.y.numbers), len(grid.x.numbers)), math.nan)
        for column, row, x, y in grid.points:
            cell = cells[x, y]
            if cell.valid and not math.isnan(cell.value):
                values[row, column] = cell.value
                _write(axes_, column, row, form(cell.value), _ink(cmap(norm(cell.value))))
            else:
                entries |= _blank(axes_, column, row, NOTHING if math.isnan(cell.value) else form(cell.value), not math.isnan(cell.value))
        axes_.pcolormesh(np.ma.masked_invalid(values), cmap=cmap, norm=norm, gid=f"{slug} {grid.title}".strip(), **_BORDER)
        _frame(axes_, grid)
        axes_.set_title("\n".join(part for part in (grid.schemes[slug], grid.title) if part))
    _outer_labels(every)
    bar = figure.colorbar(ScalarMappable(norm, cmap), ax=every, label=label, aspect=30, pad=0.02)
    bar.outline.set_visible(False)  # type: ignore[operator]
    _limit(bar.ax, norm, [cell.value for _, _, cells in panels for cell in cells.values() if cell.valid], middle)
    return figure, list(entries.values()), []


def _winner(results: Results, shown: list[Grid], table: pd.DataFrame) -> tuple[Figure, list[Artist], list[str]]:
    styles = style.scheme_styles(results.schemes)
    columns = 1 if len(shown) == 1 or len(shown[0].x.numbers) > 4 else 2
    figure, every = facets.grid(len(shown), 0.85 + WIN_ROW_IN * len(shown[0].y.numbers), columns)
    entries: dict[str, Artist] = {}
    partly = False
    for axes_, grid in zip(every, shown, strict=True):
        chars = int((7.0 if len(shown) == 1 else 3.3) / len(grid.x.numbers) * 72 / (NUMBER_PT * 0.58))
        for column, row, x, y in grid.points:
            win = grid.winner(x, y)
            if win is None:
                has_data = any(not math.isnan(grid.cell(slug, x, y).value) for slug in grid.schemes)
                entries |= _blank(axes_, column, row, "" if has_data else NOTHING, has_data)
                continue
            star = win.compared < len(grid.schemes)
            partly |= star
            shown_as = summary.BASELINE if summary.BASELINE in win.tied else win.scheme
            look = styles[shown_as]
            ground = style.mix(look.colour, 0.75 if win.tied else 0.35)
            gid = f"{shown_as} {x:g} {y:g} {grid.title}".strip()
            axes_.add_patch(Rectangle((column, row), 1, 1, facecolor=ground, gid=gid, **_BORDER))
            _write(axes_, column, row, _win_words(win, styles, chars) + "*" * star, _ink(ground))
            entries[shown_as] = Patch(facecolor=style.mix(look.colour, 0.35), label=look.label)
        _frame(axes_, grid)
        axes_.set_xlim(0, len(grid.x.numbers))
        axes_.set_ylim(0, len(grid.y.numbers))
        axes_.set_title(grid.title)
    _outer_labels(every)
    sentences = [
        "Margin: over the next scheme.",
        f"Pale, ≈: a tie, the intervals overlap or the numbers are within {TRUE_WITHIN:.0%}, as far as a valid run may be off; "
        "coloured as no compression if that is in it.",
    ]
    methods = table["interval"].dropna().unique()
    sentences += (
        [f"Intervals: {'; '.join(methods)}."] if len(methods) else ["No run was long enough for an interval, so ties are not told."]
    )
    ordered = [entries[name] for name in (*results.schemes, "not valid", "no data") if name in entries]
    return figure, ordered, sentences + ["* Not every scheme has a valid run here."] * partly


def _win_words(win: Win, styles: dict[str, SchemeStyle], chars: int) -> str:
    tied = sorted(win.tied, key=lambda slug: slug != summary.BASELINE)  # whether compression pays is what most want to know
    rivals = [styles[slug].label for slug in tied]
    if len(rivals) > MOST_RIVALS:
        rivals[MOST_RIVALS - 1 :] = [f"{len(rivals) - MOST_RIVALS + 1} more"]
    percent = 100 * win.margin
    margin = "alone" if math.isnan(percent) else f"+{percent:.1f} %" if percent < 10 else f"+{percent:.0f} %"
    names = [styles[win.scheme].label, *(f"≈ {name}" for name in rivals)]
    return "\n".join([*(style.shorten(name, chars, 2 if len(names) == 1 else 1) for name in names), margin])


def _norm(values: list[float], middle: float | None) -> Normalize:
    """Return how numbers become colours: about `middle` if there is one, by ratios if they are far apart."""
    known = [value for value in values if not math.isnan(value)] or [1.0]
    low, high = min(known), max(known)
    if middle is not None:
        reach = max(high / middle, middle / low, 1.05)
        return LogNorm(middle / reach, middle * reach)
    if low == high:
        return Normalize(low * 0.9, high * 1.1)
    return LogNorm(low, high) if high / low > LOG_ABOVE else Normalize(low, high)


def _limit(bar: Axes, norm: Normalize, values: list[float], middle: float | None) -> None:
    """Show of a colour bar what the numbers and the middle need, with few plain ticks equal steps apart."""
    known = [value for value in (*values, *([] if middle is None else [middle])) if not math.isnan(value)]
    low, high = (min(known), max(known)) if len(set(known)) > 1 else (float(norm.vmin or 0), float(norm.vmax or 1))
    ticks = np.geomspace(low, high, 5) if isinstance(norm, LogNorm) else np.linspace(low, high, 5)
    bar.set_yticks(ticks, [_three_digits(tick) for tick in ticks])
    bar.yaxis.set_minor_locator(NullLocator())
    bar.set_ylim(low, high)


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _frame(axes_: Axes, grid: Grid) -> None:
    """Label the points of both fields, with their units."""
    for field, axis, set_ticks in ((grid.x, axes_.xaxis, axes_.set_xticks), (grid.y, axes_.yaxis, axes_.set_yticks)):
        name, labels = _ticks(field)
        set_ticks([place + 0.5 for place in range(len(labels))], labels)
        axis.set_label_text(name)
        axis.set_tick_params(length=0)
    axes_.grid(visible=False)
    axes_.spines[:].set_visible(False)


def _ticks(field: Field) -> tuple[str, list[str]]:
    """Return a field's name with its unit, and its numbers in that unit."""
    name, numbers = _axis_name(field.path), field.numbers
    if field.unit in ("bit/s", "B", "s"):
        positive = [number for number in numbers if number > 0] or [1.0]
        scale, prefix = words.prefix_of(math.exp(sum(map(math.log, positive)) / len(positive)), field.unit)
        return f"{name} ({prefix}{field.unit})", [f"{number / scale:.4g}" for number in numbers]
    if name.split()[-1] in ("loss", "accuracy"):
        return f"{name} (%)", [f"{100 * number:.4g}" for number in numbers]
    return f"{name} ({field.unit})" if field.unit else name, [f"{number:.4g}" for number in numbers]


def _axis_name(path: str) -> str:
    """Name a field in full: whose it is, and that a delay is one way."""
    whose = "bottleneck " if "bottleneck" in path.split(".") else ""
    return whose + words.short_name(path) + (", one way" if path.endswith(".delay") else "")


def _outer_labels(every: list[Axes]) -> None:
    """Leave axis labels to the outer panels."""
    columns = every[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    for index, panel in enumerate(every):
        panel.set_xlabel("" if index + columns < len(every) else panel.get_xlabel())
        panel.set_ylabel("" if index % columns else panel.get_ylabel())


def _blank(axes_: Axes, column: int, row: int, text: str, has_data: bool) -> dict[str, Artist]:
    """Draw a cell without a number to be believed: crossed out if it has one, else empty; return its entry in the legend."""
    look: dict[str, Any] = {"facecolor": "white", "hatch": style.INVALID_HATCH} if has_data else {"facecolor": NO_DATA}
    label = "not valid" if has_data else "no data"
    axes_.add_patch(Rectangle((column, row), 1, 1, gid=label, **{**_BORDER, **look, "edgecolor": style.MUTED if has_data else "white"}))
    _write(axes_, column, row, text, style.INVALID if has_data else style.MUTED, white_ground=has_data)
    return {label: Patch(label=label, edgecolor=style.MUTED, linewidth=0.8, **look)}


def _write(axes_: Axes, column: int, row: int, text: str, colour: str, white_ground: bool = False) -> None:
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if white_ground else None
    axes_.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=NUMBER_PT, color=colour, bbox=ground, linespacing=1.15)


def _ink(ground: Any) -> str:
    """Return black or white, whichever can be read on a colour."""
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in mpl.colors.to_rgb(ground))
    return style.INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "white"


_BORDER: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.0}

THROUGHPUT = Heatmap("Throughput of each scheme", _throughput).drawing(
    "heatmap_throughput",
    "Samples a second over the first two fields that were swept, a map a scheme; crossed out where no run is valid.",
    80,
)
SPEEDUP = Heatmap("Speed-up over no compression", _speedup, needs=(summary.BASELINE,), least_schemes=2).drawing(
    "heatmap_speedup", "How many times the throughput of no compression each scheme has at every point of the sweep.", 81
)
WINNER = Heatmap("The fastest scheme", _winner, least_schemes=2).drawing(
    "heatmap_winner", "Which scheme has the highest throughput at every point of the sweep, and by how much; pale where it is a tie.", 82
)
