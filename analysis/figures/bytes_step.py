"""Bytes a worker sends in a step: payload as a bar, what its interface saw as a diamond; logarithmic."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis import style, summary, words
from analysis.figures import bars
from analysis.figures.registry import Drawing
from analysis.load import Results
from analysis.style import SchemeStyle

TITLE = "Bytes sent by a worker in a step"
RATIO_SENTENCE = "Beside bytes: times fewer than an uncompressed ring all-reduce sends."
DIAMOND: dict[str, Any] = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": style.INK, "linestyle": "none"}


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    sent = any((run.steps["bytes_sent"] > 0).any() for run in results.runs)
    return None if sent else "no run has a step in which bytes were sent"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell."""
    return bars.page(results, reason, draw_on, TITLE, legend_entries, lambda _results, _table: [RATIO_SENTENCE])


def draw_on(
    axes: Axes, results: Results, table: pd.DataFrame, styles: dict[str, SchemeStyle], room: bars.Room = bars.WIDE
) -> tuple[float, float]:
    """Draw the bars of one cell, given the whole summary; return the limits its axis needs."""
    mine = summary.by_scheme(table[table["run"].isin([run.slug for run in results.runs])])
    mine = mine[mine["bytes_per_step"] > 0]
    axes.set_xscale("log")
    notes = bars.Notes(axes, room)
    for place, _, row in bars.draw(axes, results, mine, "bytes_per_step", styles):
        end = row["bytes_per_step"]
        if row["wire_bytes_per_step"] > 0:
            axes.plot([row["wire_bytes_per_step"]], [place], gid=f"{row['run']} wire", zorder=5, **DIAMOND)
            end = max(end, row["wire_bytes_per_step"])
        times = row["compression_ratio"]
        fewer = f"  ({times:.3g}x)" if not math.isnan(times) and row["scheme"] != summary.BASELINE else ""
        notes.write(end, place, words.quantity(row["bytes_per_step"], "B") + fewer)
    low = 10.0 ** math.floor(math.log10(mine["bytes_per_step"].min() / 2))
    limits = (low, notes.log_reach(low))
    axes.set_xlim(*limits)
    axes.xaxis.set_major_locator(LogLocator(10, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.quantity(value, "B")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("payload per worker and step")
    return limits


def legend_entries(results: Results, table: pd.DataFrame) -> list[Artist]:
    """Return what the marks mean, those present only."""
    entries = bars.legend_entries(results, table)
    if (table["wire_bytes_per_step"] > 0).any():
        entries.append(Line2D([], [], label="on the wire", **DIAMOND))
    return entries


FIGURE = Drawing(
    "bytes_step",
    TITLE,
    "Payload that a worker sends in a step, and what its interface saw with headers, acknowledgements and retransmissions.",
    60,
    reason,
    draw,
)
