"""Throughput of each scheme with its interval, its speed-up over `none` and what the analytical model predicts."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis import style, summary
from analysis.figures import bars
from analysis.figures.registry import Drawing
from analysis.load import Results
from analysis.style import SchemeStyle

TITLE = "Throughput, and speed-up over no compression"


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    return None if any(len(run.steps) for run in results.runs) else "no run has a measured step"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell."""
    return bars.page(results, reason, draw_on, TITLE, legend_entries, explain)


def draw_on(
    axes: Axes, results: Results, table: pd.DataFrame, styles: dict[str, SchemeStyle], room: bars.Room = bars.WIDE
) -> tuple[float, float]:
    """Draw the bars of one cell, given the whole summary; return the limits its axis needs."""
    mine = summary.by_scheme(table[table["run"].isin([run.slug for run in results.runs])])
    notes = bars.Notes(axes, room)
    for place, thick, row in bars.draw(axes, results, mine, "throughput_samples_s", styles):
        value, low, high = row["throughput_samples_s"], row["throughput_low"], row["throughput_high"]
        if not math.isnan(high):
            reach = [[max(0.0, value - low)], [max(0.0, high - value)]]
            drawn = axes.errorbar(value, place, xerr=reach, color=style.INK, linewidth=1.0, capsize=2.5)
            for artist in drawn.get_children():
                artist.set_path_effects([withStroke(linewidth=2.5, foreground="white")])  # to show on dark bars
        model = row["samples_per_step"] / row["predicted_step_s"]
        if not math.isnan(model):
            ends = [place - thick * 0.45, place + thick * 0.45]
            axes.plot([model, model], ends, color=style.INK, linewidth=2.2, gid=f"{row['run']} predicted")
        warning = bars.verdict(results, row, room)
        end = max(number for number in (value, high, model) if not math.isnan(number))
        notes.write(end, place, warning or _speedup(row), style.INVALID if warning else style.INK)
    limits = (0.0, notes.reach())
    axes.set_xlim(*limits)
    axes.set_xlabel("samples/s, all workers")
    return limits


def legend_entries(results: Results, table: pd.DataFrame) -> list[Artist]:
    """Return what the marks mean, those present only."""
    entries = bars.legend_entries(results, table)
    if table["predicted_step_s"].notna().any():
        entries.append(Line2D([], [], color=style.INK, marker="|", linestyle="none", markersize=9, markeredgewidth=2.2, label="predicted"))
    return entries


def explain(results: Results, table: pd.DataFrame) -> list[str]:
    """Return the small print about intervals, predictions and replay."""
    methods = summary.by_scheme(table)["interval"].dropna().unique()
    sentences = [f"Error bars: {'; '.join(methods)}."] if len(methods) else []
    if table["predicted_step_s"].notna().any():
        sentences.append("Predicted: bytes/rate + rounds x RTT + compute.")
    if "replay" in results.workloads:
        sentences.append("Replay sleeps its compute.")
    return sentences


def _speedup(row: pd.Series) -> str:
    """Return the note of a valid bar: its rate and speed-up, and how many repeats were left out as not valid."""
    value = row["throughput_samples_s"]
    text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    if row["scheme"] != summary.BASELINE and not math.isnan(row["speedup_over_none"]):
        text += f"  ({row['speedup_over_none']:.2f}x)"
    return text + (f"  {row['left_out']} not valid, left out" if row["left_out"] else "")


FIGURE = Drawing(
    "throughput",
    TITLE,
    "Samples a second of all workers together, the median over repeats with its interval, beside what bytes, rounds and compute predict.",
    30,
    reason,
    draw,
)
