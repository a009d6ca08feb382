"""Panels over the time of a run: their axes, and the panel of the ratio, which several figures have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis import metrics_time, style
from analysis.figures.columns import Column
from analysis.load import Run
from analysis.style import SchemeStyle

TITLE_PAD_PT = 40


def draw_ratio(axes: Axes, run: Run, look: dict[str, Any]) -> None:
    """Draw a run's ratio, step by step."""
    steps = metrics_time.exchange_over_time(run.steps)
    axes.plot(steps["t_s"], steps["ratio"], gid=f"{run.slug} ratio", drawstyle="steps-post", **look)


def ratio_axis(row: Sequence[Axes]) -> None:
    """Give panels of ratios one logarithmic axis up to 1."""
    drawn = [line for axes in row for line in axes.lines if str(line.get_gid()).endswith(" ratio")]
    lowest = min((ratio for line in drawn for ratio in np.asarray(line.get_ydata(), float) if ratio > 0), default=1.0)
    row[0].set_yscale("log")
    row[0].set_ylim(min(0.5, lowest / 1.6), 1.6)
    row[0].set_ylabel("ratio")
    log_ticks(row[0])


def log_ticks(axes: Axes, of_each_decade: Sequence[int] = (1,)) -> None:
    """Label powers of ten as plain numbers, and these multiples of them."""
    axes.yaxis.set_major_locator(LogLocator(10, of_each_decade))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def time_axis(panels: np.ndarray, shown: list[Column], has_changes: bool) -> None:
    """Label the common time of each column of panels, and its cell above it and above what is said about changes."""
    for j, column in enumerate(shown):
        runs = [run for run in column.runs.values() if len(run.steps)]
        panels[-1, j].set_xlabel("time since the first step (s)")
        panels[-1, j].set_xlim(0, max(metrics_time.end_s(run.steps) for run in runs))
        panels[-1, j].xaxis.set_major_locator(MaxNLocator(8 if len(shown) < 3 else 5, steps=[1, 2, 5, 10]))
        if column.title:
            panels[0, j].set_title(column.title, pad=TITLE_PAD_PT if has_changes else 6)


def legend(slugs: Sequence[str], shown: list[Column], styles: dict[str, SchemeStyle]) -> list[Line2D]:
    """Return an entry a scheme, which says if no run of it that is shown is valid."""
    valid = {slug: any(column.runs[slug].valid for column in shown if slug in column.runs) for slug in slugs}
    return [style.scheme_line(styles[slug], valid=valid[slug]) for slug in slugs]
