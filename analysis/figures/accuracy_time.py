"""Accuracy against training time: a line a run, its last point marked; the target as a dotted level."""

from __future__ import annotations

import math
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from analysis import style, summary, words
from analysis.figures import facets
from analysis.figures.columns import left_out
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.style import SchemeStyle

TITLE = "Accuracy against training time"
PANEL_HEIGHT_IN = 4.0


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    return None if any(_has_curve(run) for run in results.runs) else "no run has an evaluation (replay does not train)"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell."""
    if reason(results):
        return None
    trained = [run for run in results.runs if _has_curve(run)]
    with style.look():
        every = [(title, part) for title, part in facets.split(results) if not reason(part)]
        parts = every[: facets.MOST]
        table = summary.summarise(results)
        figure, panels = facets.grid(len(parts), PANEL_HEIGHT_IN if len(parts) == 1 else 2.8)
        styles = style.scheme_styles(results.schemes)
        limits = []
        for axes, (title, part) in zip(panels, parts, strict=True):
            limits.append(draw_on(axes, part, table, styles))
            axes.set_title(title)
        facets.tidy(panels, limits)
        style.set_title(figure, TITLE)
        style.footnote(
            figure, words.small_print(results, trained, ["Evaluations are not on the training clock.", *left_out(len(every), len(parts))])
        )
    return figure


def draw_on(axes: Axes, results: Results, table: pd.DataFrame, styles: dict[str, SchemeStyle]) -> tuple[float, float]:
    """Draw the curves of one cell, given the whole summary; return the limits its axis needs."""
    runs = [run for run in results.runs if _has_curve(run)]
    latest = max(run.evals["train_s"].max() for run in runs)
    for run in runs:
        _curve(axes, run, styles[run.scheme])
    targets = table.loc[table["run"].isin([run.slug for run in runs]), "target_accuracy"].dropna().unique()
    if len(targets) == 1:
        axes.axhline(targets[0], color=style.MUTED, linewidth=0.9, linestyle=":", gid="target", zorder=1)
        axes.annotate(
            f"target {100 * targets[0]:.1f} %",
            (0, targets[0]),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=7,
            color=style.MUTED,
            va="bottom",
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("test accuracy")
    axes.set_xlabel("training time (s)")
    axes.legend(handles=_legend(runs, styles), loc="lower right", handlelength=2.6, labelspacing=0.35)
    limits = (0.0, latest * 1.03)
    axes.set_xlim(*limits)
    return limits


def _curve(axes: Axes, run: Run, look: SchemeStyle) -> None:
    """Draw one run: a pale line if invalid; at its end a filled marker, a hollow one if invalid, a cross if cut short."""
    curve = run.evals.dropna(subset=["accuracy", "train_s"]).sort_values("train_s", kind="stable")
    axes.plot(
        curve["train_s"],
        curve["accuracy"],
        color=look.colour,
        linestyle=look.line,
        alpha=1.0 if run.valid else 0.55,
        linewidth=1.6 if run.valid else 1.1,
        gid=run.slug,
    )
    end = curve.iloc[-1]
    axes.plot([end["train_s"]], [end["accuracy"]], linestyle="none", clip_on=False, zorder=5, gid=f"{run.slug} end", **marker(run, look))


def marker(run: Run, look: SchemeStyle) -> dict[str, Any]:
    """Return how the end of a run's curve is marked: filled, hollow if it is not valid, a cross if it was cut short."""
    if not run.complete:
        return {"marker": "x", "color": look.colour, "markeredgewidth": 1.8}
    face = look.colour if run.valid else "white"
    return {"marker": look.marker, "markerfacecolor": face, "markeredgecolor": look.colour if not run.valid else "white", "markersize": 8}


def _legend(runs: list[Run], styles: dict[str, SchemeStyle]) -> list[Line2D]:
    """Return an entry a scheme: its final accuracy (the median, as in the summary), or why it should not be believed; the best first."""
    schemes: dict[str, list[Run]] = {}
    for run in runs:
        schemes.setdefault(run.scheme, []).append(run)
    entries: list[tuple[float, Line2D]] = []
    for slug, members in schemes.items():
        good = [run for run in members if run.valid] or members
        finals = [value for run in good if not math.isnan(value := summary.metrics.final_accuracy(run.evals))]
        middle = median(finals) if finals else -1.0
        text = styles[slug].label + (f"  {100 * middle:.1f} %" if finals else "")
        verdict = good[0].verdict
        text += f" ({verdict.split(':')[0]})" if verdict else ""
        look = _without_colour(marker(good[0], styles[slug]))
        entries.append((middle, Line2D([], [], label=text, linestyle=styles[slug].line, color=styles[slug].colour, **look)))
    return [entry for _, entry in sorted(entries, key=lambda pair: -pair[0])]


def _without_colour(look: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in look.items() if key not in ("color", "markersize")}


def _has_curve(run: Run) -> bool:
    return bool(run.evals[["accuracy", "train_s"]].notna().all(axis=1).any())


FIGURE = Drawing(
    "accuracy_time",
    TITLE,
    "Each run's accuracy on the test set over its training clock; the dotted level is the target that time to accuracy is measured by.",
    10,
    reason,
    draw,
)
