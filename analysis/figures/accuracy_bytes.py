"""Accuracy against bytes: what each run had reached by what it had sent, and the schemes that none beats at both."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis import metrics_time, style, summary, words
from analysis.figures import accuracy_time, facets
from analysis.figures.columns import left_out
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.style import SchemeStyle

TITLE = "Accuracy against bytes sent"
FRONTIER = {"color": style.MUTED, "linewidth": 5.0, "alpha": 0.3, "solid_capstyle": "butt"}
MOST_PANELS = 6


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if why := accuracy_time.reason(results):
        return why
    return None if any(len(_curve(run)) for run in results.runs) else "no run that was evaluated sent bytes"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell."""
    if reason(results):
        return None
    with style.look():
        every = [(title, part) for title, part in facets.split(results) if not reason(part)]
        shown = every[:MOST_PANELS]
        table = summary.summarise(results)
        styles = style.scheme_styles(results.schemes)
        figure, panels = facets.grid(len(shown), 3.8 if len(shown) == 1 else 2.8)
        limits = []
        for axes, (title, part) in zip(panels, shown, strict=True):
            limits.append(draw_on(axes, part, table, styles))
            axes.set_title(title)
        facets.tidy(panels, limits)
        present = {run.scheme: run.valid for run in sorted(results.runs, key=lambda run: run.valid) if len(_curve(run))}
        entries = [style.scheme_line(styles[slug], valid=present[slug]) for slug in results.schemes if slug in present]
        style.set_title(figure, TITLE, [*entries, Line2D([], [], label="not beaten", **FRONTIER)])  # type: ignore[arg-type]
        extra = ["Not beaten: no valid scheme ended with more accuracy and fewer bytes (medians over repeats)."]
        extra += left_out(len(every), len(shown))
        style.footnote(figure, words.small_print(results, [run for _, part in shown for run in part.runs], extra))
    return figure


def draw_on(axes: Axes, results: Results, table: pd.DataFrame, styles: dict[str, SchemeStyle]) -> tuple[float, float]:
    """Draw the curves and the frontier of one cell, given the whole summary; return the limits its axis needs."""
    axes.set_xscale("log")
    low, high = math.inf, 0.0
    for run in results.runs:
        curve, look = _curve(run), styles[run.scheme]
        if curve.empty:
            continue
        pale = {"alpha": 1.0 if run.valid else 0.55, "linewidth": 1.4 if run.valid else 1.0}
        axes.plot(curve["bytes"], curve["accuracy"], color=look.colour, linestyle=look.line, gid=run.slug, **pale)  # type: ignore[arg-type]
        end = curve.iloc[-1]
        axes.plot([end["bytes"]], [end["accuracy"]], linestyle="none", zorder=5, gid=f"{run.slug} end", **accuracy_time.marker(run, look))
        low, high = min(low, curve["bytes"].min()), max(high, curve["bytes"].max())
    best = frontier(_ends(results, table))
    if best:
        axes.plot(*zip(*_stairs(best, high * 1.3), strict=True), zorder=1, gid="frontier", **FRONTIER)  # type: ignore[arg-type]
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 300 * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.quantity(value, "B")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("test accuracy")
    axes.set_xlabel("sent by a worker so far")
    return low / 1.2, high * 1.3


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (bytes, accuracy) that no other beats at both, by their bytes."""
    best: list[tuple[float, float]] = []
    for sent, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or accuracy > best[-1][1]:
            best.append((sent, accuracy))
    return best


def _ends(results: Results, table: pd.DataFrame) -> list[tuple[float, float]]:
    """Return what each valid scheme sent and reached, medians over its repeats."""
    rows = summary.by_scheme(table[table["run"].isin([run.slug for run in results.runs])])
    rows = rows[rows["valid"] & rows["final_accuracy"].notna() & (rows["bytes_sent"] > 0)]
    return list(zip(rows["bytes_sent"], rows["final_accuracy"], strict=True))


def _stairs(points: list[tuple[float, float]], right: float) -> list[tuple[float, float]]:
    """Return the corners of the stairs over the points."""
    corners: list[tuple[float, float]] = []
    for (sent, accuracy), (until, _) in zip(points, [*points[1:], (right, math.nan)], strict=True):
        corners += [(sent, accuracy), (until, accuracy)]
    return corners


def _curve(run: Run) -> pd.DataFrame:
    """Return the accuracy of each evaluation and what one worker had sent by then, where it had sent anything."""
    evals = run.evals.dropna(subset=["accuracy", "train_s", "step"]).sort_values("train_s", kind="stable")
    sent = metrics_time.bytes_so_far(run.steps)
    by_step = np.interp(evals["step"], sent.index.to_numpy(dtype=float), sent.to_numpy(dtype=float))
    curve = pd.DataFrame({"bytes": by_step, "accuracy": evals["accuracy"].to_numpy()})
    return curve[curve["bytes"] > 0]


FIGURE = Drawing(
    "accuracy_bytes",
    TITLE,
    "Each run's accuracy by what a worker had sent so far; up and to the left is better.",
    15,
    reason,
    draw,
)
