"""How many bits a gradient value costs over training, pushes and pulls apart where there is a server; logarithmic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis import metrics_time, style, words
from analysis.figures import facets
from analysis.figures.columns import Column, columns, left_out, one_of_repeats
from analysis.figures.registry import Drawing
from analysis.load import Results, Run, dig
from analysis.style import SchemeStyle

TITLE = "Bits a gradient value costs"
MOST_PANELS = 6
BINS = 100
DENSE_BITS = 32
MARKERS = {"both": None, "push": "^", "pull": "v"}
RING_SENTENCE = "Ring: 32 x bytes sent / those of an uncompressed ring all-reduce; all-gathered payloads cost N/2 times their own size."
SERVER_SENTENCE = "Server: one worker's push and pull."


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    return None if any(len(_bits(run)) for run in results.runs) else "no run recorded the bytes it sent and the size of its gradient"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell and workload."""
    if reason(results):
        return None
    with style.look():
        every = [column for column in columns(results) if any(len(_bits(run)) for run in column.runs.values())]
        shown = every[:MOST_PANELS]
        figure, panels = facets.grid(len(shown), 3.6 if len(shown) == 1 else 2.6)
        styles = style.scheme_styles(results.schemes)
        drawn = [_panel(axes, column, styles, say_medians=len(shown) == 1) for axes, column in zip(panels, shown, strict=True)]
        facets.tidy(panels, [(0.0, last) for last, _ in drawn])
        entries = {str(entry.get_label()): entry for _, lines in drawn for entry in lines}
        style.set_title(figure, TITLE, list(entries.values()))
        runs = [run for column in shown for run in column.runs.values()]
        extra = ["Numbers: medians over the steps."] * (len(shown) == 1)
        extra += [
            RING_SENTENCE,
            *[SERVER_SENTENCE] * any(run.has_server for run in runs),
            *one_of_repeats(shown),
            *left_out(len(every), len(shown)),
        ]
        style.footnote(figure, words.small_print(results, runs, extra))
    return figure


def _panel(axes: Axes, column: Column, styles: dict[str, SchemeStyle], say_medians: bool) -> tuple[float, list[Line2D]]:
    """Draw a line a scheme, two where there is a server; return the last step and what the lines mean."""
    axes.axhline(DENSE_BITS, color=style.MUTED, linewidth=0.9, linestyle=":", gid="uncompressed", zorder=1)
    entries: list[Line2D] = []
    last = 1.0
    for run in column.runs.values():
        bits = _bits(run)
        for way in bits.columns[bits.notna().any()]:
            steps, values = _binned(bits[way].dropna())
            look: dict[str, Any] = {"color": styles[run.scheme].colour, "linestyle": styles[run.scheme].line}
            look |= {"alpha": 1.0 if run.valid else 0.55, "marker": MARKERS[way], "markeredgecolor": "white", "markeredgewidth": 0.6}
            axes.plot(steps, values, gid=f"{run.slug} {way}", markevery=0.12, **look)
            last = max(last, float(steps[-1]))
            name = styles[run.scheme].label + f" {way}" * (way != "both") + f": {np.median(values):.2g}" * say_medians
            entries.append(Line2D([], [], label=name + " (not valid)" * (not run.valid), **look))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(2, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_ylabel("bits per value")
    axes.set_xlabel("step")
    axes.set_title(column.title)
    return last, entries


def _binned(bits: pd.Series) -> tuple[metrics_time.Numbers, metrics_time.Numbers]:
    """Return the median of each of BINS equal stretches of steps, at their middles; every step where there are few."""
    steps, values = bits.index.to_numpy(dtype=float), bits.to_numpy(dtype=float)
    if len(steps) <= 2 * BINS:
        return steps, values
    parts = np.array_split(np.arange(len(steps)), BINS)
    return np.array([steps[part].mean() for part in parts]), np.array([np.median(values[part]) for part in parts])


def _bits(run: Run) -> pd.DataFrame:
    workers = dig(run.manifest, "workers") or []
    return metrics_time.bits_per_value(run.steps, len(workers) or int(run.steps["rank"].nunique()), run.has_server)


FIGURE = Drawing(
    "bits_value",
    TITLE,
    "What is sent for each value of the gradient, step by step; 32 bits without compression.",
    65,
    reason,
    draw,
)
