"""How often the bottleneck's queue held how much: for each backlog, the share of the time in which it held more, a line a scheme."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from analysis import queues, style, words
from analysis.figures import backlog, facets, timelines
from analysis.figures.columns import Column, columns, left_out
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.metrics_time import Numbers
from analysis.style import SchemeStyle

TITLE = "How full the bottleneck's queue is"
MOST_PANELS = 6
MOST_NAMED = 3  # directions in the title
POINTS = 300


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if why := backlog.reason(results):
        return why
    if not any(len(_with_limit(run)) for run in results.runs):
        return "no bottleneck's queue has a limit"
    return None if any(len(_busiest([run])[1]) for run in results.runs) else "no run sampled its bottleneck's queue during a step"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell and workload, the samples of all repeats together; those during evaluations are left out."""
    if reason(results):
        return None
    with style.look():
        every = columns(results)
        shown = every[:MOST_PANELS]
        styles = style.scheme_styles(results.schemes)
        runs = [run for column in shown for repeats in column.repeats.values() for run in repeats]
        samples = [{slug: _busiest(repeats) for slug, repeats in column.repeats.items()} for column in shown]
        ways = dict.fromkeys(str(way) for one in samples for way, _ in one.values() if way)
        figure, panels = facets.grid(len(shown), 3.4 if len(shown) == 1 else 2.6)
        waits_ms: dict[str, float] = {}
        for axes, column, mine in zip(panels, shown, samples, strict=True):
            waits_ms |= _panel(axes, column, {slug: frame for slug, (_, frame) in mine.items() if len(frame)}, styles)
        facets.tidy(panels, [(0.0, 1.0)])
        panels[0].set_ylim(bottom=0)
        slugs = [slug for slug in results.schemes if slug in waits_ms]
        if len(shown) == 1:
            styles |= {
                slug: replace(styles[slug], label=f"{styles[slug].label}: {waits_ms[slug]:.2g} ms") for slug in slugs if waits_ms[slug] >= 0
            }
        where = " or ".join(ways) if len(ways) <= MOST_NAMED else "where it is busiest"
        style.set_title(figure, f"{TITLE}, {where}", timelines.legend(slugs, shown, styles))
        extra = ["Without the time of evaluations."] * any(len(run.evals) for run in runs)
        extra += ["Beside names: the wait that 95 % of the time was not exceeded."] * (len(shown) == 1)
        extra += ["Of each scheme the direction with most backlog."] * (len(ways) > 1)
        extra += [*backlog.busiest(shown), *left_out(len(every), len(shown))]
        style.footnote(figure, words.small_print(results, runs, extra))
    return figure


def exceedance(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return levels from 0 to the largest value, and the share of the values above each."""
    ordered = np.sort(values)
    levels = np.linspace(0.0, ordered[-1], POINTS)
    return levels, 1 - np.searchsorted(ordered, levels, side="right") / len(ordered)


def _panel(axes: Axes, column: Column, samples: dict[str, pd.DataFrame], styles: dict[str, SchemeStyle]) -> dict[str, float]:
    """Draw the lines of one panel and return the wait of each scheme that 95 % of the time was not exceeded."""
    waits_ms = {}
    for place, (slug, mine) in enumerate(samples.items()):
        levels, shares = exceedance((mine["backlog_bytes"] / mine["queue_bytes"]).to_numpy(dtype=float))
        look = style.trace_look(styles[slug], column.runs[slug].valid, place)
        axes.plot(levels, shares, gid=f"{slug} share {column.title}".strip(), **look)
        waits_ms[slug] = 1e3 * float(queues.waits_s(mine).quantile(0.95))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.set_ylabel("share of the training above")
    axes.set_xlabel("backlog, of the queue's limit")
    axes.set_title(column.title)
    return waits_ms


def _busiest(repeats: list[Run]) -> tuple[queues.Direction | None, pd.DataFrame]:
    """Return a scheme's busiest direction over all repeats, and its samples during their steps; None without any."""
    samples = [_with_limit(run) for run in repeats]
    ways = queues.directions(samples)
    if not ways:
        return None, samples[0]
    return ways[0], pd.concat([queues.within_steps(ways[0].of(one), run.steps) for one, run in zip(samples, repeats, strict=True)])


def _with_limit(run: Run) -> pd.DataFrame:
    samples = queues.training_samples(run)
    return samples[samples["queue_bytes"] > 0]


FIGURE = Drawing(
    "backlog_share",
    TITLE,
    "For each backlog the share of the training, without evaluations, in which more was waiting; the lower a line, the shorter the queue.",
    75,
    reason,
    draw,
)
