"""Horizontal bars, a group a scheme and a bar a workload: what `throughput`, `bytes_step` and `breakdown` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis import style, summary, words
from analysis.figures import facets
from analysis.figures.columns import left_out
from analysis.load import Results
from analysis.style import SchemeStyle

GROUP = 0.78  # share of a scheme's room that its bars fill
NOTE_PT = 7.5
NOTE_GAP_PT = 6


@dataclass(frozen=True)
class Room:
    """How wide a panel's axes are, and how long a note beside a bar may be."""

    axes_in: float
    note_chars: int
    note_lines: int = 2


WIDE = Room(axes_in=6.3, note_chars=44)  # the only panel of a figure
NARROW = Room(axes_in=3.2, note_chars=26)  # two side by side
QUARTER = Room(axes_in=3.5, note_chars=27, note_lines=1)  # of the overview


DrawOn = Callable[[Axes, Results, pd.DataFrame, dict[str, SchemeStyle], Room], tuple[float, float]]


@dataclass
class Notes:
    """The notes of a panel; they decide how far its axis must reach to hold them."""

    axes: Axes
    room: Room
    written: list[tuple[float, float]] = field(default_factory=list)  # where a note starts, and its width in inches

    def write(self, x: float, y: float, text: str, colour: str = style.INK) -> None:
        """Write beside the end of a bar, on a ground that keeps grid lines out of the letters."""
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
        note = self.axes.annotate(text, (x, y), xytext=(NOTE_GAP_PT, 0), textcoords="offset points", va="center", bbox=ground)
        note.set(fontsize=NOTE_PT, color=colour, linespacing=1.0, zorder=6, in_layout=False)
        longest = max(len(line) for line in text.splitlines())
        self.written.append((x, (longest * NOTE_PT * 0.56 + NOTE_GAP_PT) / 72))

    def reach(self) -> float:
        """Return the right limit of a linear axis from 0 that leaves room for every note."""
        return max(x / (1 - min(width / self.room.axes_in, 0.8)) for x, width in self.written)

    def log_reach(self, low: float) -> float:
        """Return the same for a logarithmic axis that begins at `low`."""
        return max(float(low * (x / low) ** (1 / (1 - min(width / self.room.axes_in, 0.8)))) for x, width in self.written)


def draw(
    axes: Axes, results: Results, table: pd.DataFrame, value: str, styles: dict[str, SchemeStyle]
) -> Iterator[tuple[float, float, pd.Series]]:
    """Draw a bar for each row of `summary.by_scheme` and yield its place and thickness, so that the caller can add to it."""
    for place, thick, row in places(results, table):
        look = style.bar_look(styles[row["scheme"]], row["workload"], bool(row["valid"]))
        axes.barh(place, row[value], height=thick * 0.9, gid=row["run"], **look)
        yield place, thick, row
    frame(axes, list(results.schemes), styles)


def places(results: Results, table: pd.DataFrame) -> Iterator[tuple[float, float, pd.Series]]:
    """Yield the place and thickness of the bar of each row of `summary.by_scheme`."""
    schemes, workloads = list(results.schemes), results.workloads
    thick = GROUP / len(workloads)
    for _, row in table.iterrows():
        beside = [kind for kind in workloads if kind in set(table.loc[table["scheme"] == row["scheme"], "workload"])]
        place = schemes.index(row["scheme"]) + (beside.index(row["workload"]) - (len(beside) - 1) / 2) * thick
        yield place, thick, row


def frame(axes: Axes, schemes: list[str], styles: dict[str, SchemeStyle]) -> None:
    """Name the schemes beside their bars, the first on top."""
    axes.set_yticks(range(len(schemes)), [styles[slug].label for slug in schemes])
    axes.set_ylim(len(schemes) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")


def height_in(results: Results) -> float:
    """Return how high a panel must be for its bars."""
    return 0.9 + 0.25 * len(results.schemes) * (1 + len(results.workloads))


def verdict(results: Results, row: pd.Series, room: Room) -> str | None:
    """Return the warning for a bar that is not valid."""
    run = next(run for run in results.runs if run.slug == row["run"])
    return style.shorten(run.verdict, room.note_chars, room.note_lines) if run.verdict else None


def legend_entries(results: Results, table: pd.DataFrame) -> list[Artist]:
    """Return legend entries for what fillings mean, those present only."""
    grey: dict[str, Any] = {"linewidth": 0.8, "edgecolor": style.MUTED}
    entries: list[Artist] = []
    if len(results.workloads) > 1:
        entries.append(Patch(facecolor=style.MUTED, label="train", **grey))
        entries.append(Patch(facecolor="#d0d0d0", hatch=style.REPLAY_HATCH, label="replay", **grey))
    if not table["valid"].fillna(True).all():
        entries.append(Patch(facecolor="white", hatch=style.INVALID_HATCH, label="not valid", **grey))
    return entries


def page(
    results: Results,
    reason: Callable[[Results], str | None],
    draw_on: DrawOn,
    title: str,
    legend_entries: Callable[[Results, pd.DataFrame], list[Artist]],
    explain: Callable[[Results, pd.DataFrame], list[str]],
) -> Figure | None:
    """Draw one panel a cell, with a title, a legend and the small print; None where there is a reason to draw nothing."""
    if reason(results):
        return None
    with style.look():
        table = summary.summarise(results)
        every = [(title, part) for title, part in facets.split(results) if not reason(part)]
        shown = every[: facets.MOST]
        figure = _panels(results, shown, table, draw_on)
        style.set_title(figure, title, legend_entries(results, table))
        extra = explain(results, table) + left_out(len(every), len(shown))
        style.footnote(figure, words.small_print(results, results.runs, extra))
    return figure


def _panels(results: Results, parts: list[tuple[str, Results]], table: pd.DataFrame, draw_on: DrawOn) -> Figure:
    """Lay out one panel a cell, with common limits."""
    figure, axes_of_parts = facets.grid(len(parts), height_in(results), max_columns=2)
    styles = style.scheme_styles(results.schemes)
    room = WIDE if len(parts) == 1 else NARROW
    limits = []
    for axes, (title, part) in zip(axes_of_parts, parts, strict=True):
        limits.append(draw_on(axes, part, table, styles, room))
        axes.set_title(title)
    facets.tidy(axes_of_parts, limits)
    return figure
