"""How schemes follow a network that changes: throughput, ratio and bandwidth over time, one above the other.

Changes of links are marked and background traffic is shaded; without either there is nothing to follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import background, metrics_time, queues, style, words
from analysis.figures import marks, timelines
from analysis.figures.columns import MOST, Column, columns, left_out, one_of_repeats, schemes
from analysis.figures.registry import Drawing
from analysis.load import Results
from analysis.style import SchemeStyle

TITLE = "Throughput, ratio and bandwidth while the network changes"
PANEL_HEIGHTS_IN = (1.7, 1.3, 1.7)
UNLIMITED = 10.0  # a rate so many times what was ever delivered is off the panel
CONFIGURED: dict[str, Any] = {"facecolor": "#eeeeee", "edgecolor": "#999999"}


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    changing = [run for run in results.runs if len(run.steps) and (marks.changes([run]) or len(background.read(run)))]
    return None if changing else "no link was changed and there was no background traffic while a run trained"


def draw(results: Results) -> Figure | None:
    """Draw a column a cell and workload: three panels over the same time."""
    if reason(results):
        return None
    with style.look():
        every = [column for column in columns(results) if any(len(run.steps) for run in column.runs.values())]
        shown = every[:MOST]
        styles = style.scheme_styles(results.schemes)
        figure = style.new_figure(sum(PANEL_HEIGHTS_IN) + 0.9, style.WIDTH_IN * (1 if len(shown) < 3 else 1.3))
        panels = figure.subplots(3, len(shown), sharex="col", sharey="row", squeeze=False, height_ratios=PANEL_HEIGHTS_IN)
        told = [_column(list(panels[:, j]), column, styles) for j, column in enumerate(shown)]
        panels[0, 0].set_ylim(bottom=0)
        panels[0, 0].set_ylabel("samples/s")
        timelines.ratio_axis(list(panels[1]))
        _bandwidth_axis(list(panels[2]))
        timelines.time_axis(panels, shown, any(one.changes for one in told))
        figure.align_ylabels()
        traffic = list(dict.fromkeys(text for one in told for text in one.traffic))
        style.set_title(figure, TITLE, [*timelines.legend(schemes(results, shown), shown, styles), *_more_entries(bool(traffic))])
        ways = ", ".join(dict.fromkeys(one.way for one in told))
        extra = [f"Windows of {metrics_time.WINDOW_S:g} s or more; bandwidth of all traffic over the bottleneck, {ways}."]
        extra += dict.fromkeys(text for one in told for text in marks.explain(one.changes))
        extra += [f"Background: {'; '.join(traffic)}."] * bool(traffic)
        extra += [*one_of_repeats(shown), *left_out(len(every), len(shown))]
        style.footnote(figure, words.small_print(results, [run for column in shown for run in column.runs.values()], extra))
    return figure


@dataclass(frozen=True)
class _Told:
    """What a column's small print must say."""

    way: str  # the direction whose bandwidth is shown
    changes: list[marks.Change]
    traffic: list[str]


def _column(panels: list[Axes], column: Column, styles: dict[str, SchemeStyle]) -> _Told:
    """Draw one column."""
    runs = [run for run in column.runs.values() if len(run.steps)]
    samples = {run.slug: queues.training_samples(run) for run in runs}
    way = next(iter(queues.directions(samples.values())), None)
    for place, run in enumerate(runs):
        look = style.trace_look(styles[run.scheme], run.valid, place)
        edges_s = metrics_time.window_edges_s(metrics_time.end_s(run.steps))
        middles_s = (edges_s[:-1] + edges_s[1:]) / 2
        panels[0].plot(middles_s, metrics_time.throughput_over_time(run.steps, edges_s), gid=f"{run.slug} throughput", **look)
        timelines.draw_ratio(panels[1], run, look)
        if way is not None:
            delivered = metrics_time.delivered_bps(way.of(samples[run.slug]), edges_s)
            if not np.isnan(delivered).all():  # matplotlib cannot mark a line without a point
                panels[2].plot(middles_s, delivered / 1e6, gid=f"{run.slug} delivered", **look)
        rival = background.over(run, background.read(run), way) if way else background.read(run)
        if len(rival):
            got = background.received_bps(rival, edges_s)
            panels[2].plot(middles_s, got / 1e6, gid=f"{run.slug} background", **look | {"linestyle": ":", "marker": None})
    if way is None:
        style.nothing(panels[2], "no bottleneck was sampled")
    else:
        _configured(panels[2], way.of(samples[max(runs, key=lambda run: metrics_time.end_s(run.steps)).slug]))
    found = marks.changes(runs)
    marks.draw_changes(panels, found, styles)
    return _Told(str(way), found, marks.draw_background(panels, runs))


def _configured(axes: Axes, samples: pd.DataFrame) -> None:
    """Shade what the direction was configured to carry."""
    times, rates = metrics_time.configured_bps(samples)
    if not len(times):
        return
    times, rates = np.append(times, samples["t_s"].max()), np.append(rates, rates[-1:]) / 1e6
    axes.fill_between(times, rates, step="post", color=CONFIGURED["facecolor"], linewidth=0, zorder=0.1)
    axes.step(times, rates, where="post", color=CONFIGURED["edgecolor"], linewidth=1.4, zorder=1.5, gid="configured")


def _bandwidth_axis(row: list[Axes]) -> None:
    """Scale the panels to what was delivered and configured; a rate that is as good as no limit is off them."""
    values = {str(line.get_gid()): np.asarray(line.get_ydata(), float) for axes in row for line in axes.lines}
    measured = [y for gid, y in values.items() if gid.endswith((" delivered", " background"))]
    delivered = max((mbps for y in measured for mbps in y if not np.isnan(mbps)), default=0.0)
    limits = [limit for gid, y in values.items() if gid == "configured" for limit in y if limit <= UNLIMITED * delivered]
    row[0].set_ylim(0, 1.08 * max([delivered, *limits, 1e-3]))
    row[0].set_ylabel("Mbit/s")


def _more_entries(has_background: bool) -> list[Artist]:
    entries: list[Artist] = [Patch(label="configured", linewidth=1.4, **CONFIGURED)]
    if has_background:
        entries.append(Patch(facecolor=marks.SHADE, alpha=0.6, label="background traffic"))
        entries.append(Line2D([], [], color=style.MUTED, linestyle=":", label="received by it"))
    return entries


FIGURE = Drawing(
    "changes",
    TITLE,
    "How fast each scheme trains, how much of the gradient it sends and what the bottleneck carries, as links change or others use them.",
    20,
    reason,
    draw,
)
