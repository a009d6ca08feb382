"""Throughput against bandwidth: a line a scheme over the rates that were swept, medians with their intervals."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from analysis import style, summary, words
from analysis.fields import Field, swept_fields
from analysis.figures import facets
from analysis.figures.registry import Drawing
from analysis.load import Results
from analysis.style import SchemeStyle

TITLE = "Throughput against bandwidth"
MOST_PANELS = 6
SPREAD = 0.012  # of the axis, by which neighbours' points stand apart


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if _rate(results) is None:
        return "no rate is swept"
    return None if any(len(run.steps) for run in results.runs) else "no run has a measured step"


def draw(results: Results) -> Figure | None:
    """Draw one panel for each combination of whatever else was swept."""
    field = _rate(results)
    if reason(results) or field is None:
        return None
    with style.look():
        table = summary.summarise(results)
        points = summary.by_scheme(table)
        points["rate_bps"] = points["run"].map(field.values).astype(float)
        points["panel"] = points["run"].map(_titles(results, field))
        every = list(dict.fromkeys(points["panel"]))
        shown = every[:MOST_PANELS]
        styles = style.scheme_styles(results.schemes)
        figure, panels = facets.grid(len(shown), 3.8 if len(shown) == 1 else 2.8)
        limits = []
        for axes, title in zip(panels, shown, strict=True):
            limits.append(_panel(axes, points[points["panel"] == title], styles))
            axes.set_title(title)
        _rates_axis(panels, field)
        facets.tidy(panels, limits)
        panels[0].set_ylim(bottom=0)
        entries = [style.scheme_line(look) for look in styles.values()]
        hollow = Line2D([], [], label="not valid", linestyle="none", marker="o", markerfacecolor="white", markeredgecolor=style.MUTED)
        entries += [hollow] * (not points["valid"].all())
        style.set_title(figure, TITLE, entries)
        methods = points["interval"].dropna().unique()
        extra = ["Medians over repeats.", *[f"Error bars: {'; '.join(methods)}."] * bool(len(methods))]
        extra += [f"First {len(shown)} of {len(every)} combinations of what else was swept."] * (len(every) > len(shown))
        style.footnote(figure, words.small_print(results, results.runs, extra))
    return figure


def _panel(axes: Axes, points: pd.DataFrame, styles: dict[str, SchemeStyle]) -> tuple[float, float]:
    """Draw the lines of one panel; return the limits its axis needs."""
    axes.set_xscale("log")
    low, high = points["rate_bps"].min() / 1.25, points["rate_bps"].max() * 1.25
    for place, (slug, look) in enumerate(styles.items()):
        mine = points[points["scheme"] == slug].sort_values("rate_bps")
        aside = math.exp((place - (len(styles) - 1) / 2) * SPREAD * math.log(high / low))
        at = mine["rate_bps"] * aside
        axes.plot(at, mine["throughput_samples_s"], color=look.colour, linestyle=look.line, linewidth=1.4, gid=f"{slug} line")
        for x, (_, row) in zip(at, mine.iterrows(), strict=True):
            _point(axes, float(x), row, look)
    axes.set_ylabel("samples/s, all workers")
    return low, high


def _point(axes: Axes, at: float, row: pd.Series, look: SchemeStyle) -> None:
    """Draw one median: hollow if it is not valid, with its interval if it has one."""
    value, low, high = row["throughput_samples_s"], row["throughput_low"], row["throughput_high"]
    if not math.isnan(high):
        axes.plot([at, at], [low, high], color=look.colour, linewidth=1.0, alpha=0.7, gid=f"{row['run']} interval")
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.7} if row["valid"] else {"markeredgecolor": look.colour}
    face = look.colour if row["valid"] else "white"
    axes.plot([at], [value], linestyle="none", marker=look.marker, markerfacecolor=face, gid=row["run"], zorder=3, **edge)


def _rates_axis(panels: list[Axes], field: Field) -> None:
    """Label the rates that were swept, and those only."""
    scale, prefix = words.prefix_of(math.exp(sum(map(math.log, field.numbers)) / len(field.numbers)), "bit/s")
    for axes in panels:
        axes.set_xticks(field.numbers, [f"{number / scale:.4g}" for number in field.numbers])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(f"{words.short_name(field.path)} ({prefix}bit/s)")


def _rate(results: Results) -> Field | None:
    """Return the first swept rate that takes at least two values."""
    rates = (field for field in swept_fields(results) if field.unit == "bit/s")
    return next((field for field in rates if len(field.numbers) > 1 and min(field.numbers) > 0), None)


def _titles(results: Results, field: Field) -> dict[str, str]:
    """Return what else was swept of each run, in words, the kind of workload too."""
    titles = {}
    for run in results.runs:
        rest = words.cell_words({path: value for path, value in run.cell.items() if path != field.path})
        titles[run.slug] = ", ".join(part for part in (rest, run.workload if len(results.workloads) > 1 else "") if part)
    return titles


FIGURE = Drawing(
    "throughput_rate",
    TITLE,
    "Samples a second of each scheme over the swept bandwidth: where lines meet, compression no longer pays.",
    35,
    reason,
    draw,
)
