"""What the bottleneck's queue held over time: a row a scheme, the same axes for all, in kB and in ms of waiting.

The direction with most backlog stands on the axis; with traffic both ways the other hangs below it. Of several bottlenecks one is shown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis import metrics, queues, style, words
from analysis.figures.columns import MOST, Column, columns, left_out, one_of_repeats, schemes
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.queues import Direction
from analysis.style import Canvas, SchemeStyle

TITLE = "Backlog of the bottleneck's queue"
SCALE_SENTENCE = "Queue: dashed, its limit; right axis, the wait it means (none where the rate changed)."
ROW_HEIGHT_IN = 1.0
BINS = 700  # about one a pixel of a full-width panel


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if all(run.on_machines for run in results.runs):
        return "the queues between real machines are not sampled"
    if not any(queues.bottlenecks(run) for run in results.runs):
        return "no run's network marks a bottleneck"
    return (
        None if any(len(queues.training_samples(run)) for run in results.runs) else "no run sampled its bottleneck's queue while training"
    )


def draw(results: Results) -> Figure | None:
    """Draw a grid: schemes down, cells and workloads across."""
    if reason(results):
        return None
    with style.look():
        every = columns(results)
        shown = every[:MOST]
        rows = len(schemes(results, shown))
        figure = style.new_figure(1.1 + ROW_HEIGHT_IN * rows, style.WIDTH_IN * (1 if len(shown) < 3 else 1.3))
        style.set_title(figure, draw_in(figure, results, style.scheme_styles(results.schemes), shown))
        extra = [SCALE_SENTENCE, f"Each of {BINS} stretches of time shows its largest backlog."]
        extra += [*busiest(shown), *one_of_repeats(shown), *left_out(len(every), len(shown))]
        style.footnote(figure, words.small_print(results, [run for column in shown for run in column.runs.values()], extra))
    return figure


def draw_in(
    canvas: Canvas, results: Results, styles: dict[str, SchemeStyle], shown: list[Column] | None = None, both_ways: bool = True
) -> str:
    """Draw the rows into a figure or a part of one, the first column only if none are given; return a title."""
    shown = shown or columns(results)[:1]
    slugs = schemes(results, shown)
    runs = [run for column in shown for run in column.runs.values()]
    samples = {run.slug: queues.training_samples(run) for run in runs}
    ways = queues.directions(samples.values())[: 2 if both_ways else 1]
    title_chars = int(84 / max(2, len(shown)))
    panels = canvas.subplots(len(slugs), len(shown), sharex="col", sharey=True, squeeze=False)
    for j, column in enumerate(shown):
        for i, slug in enumerate(slugs):
            axes = panels[i, j]
            run = column.runs.get(slug)
            _panel(axes, run, samples[run.slug] if run else None, ways, styles[slug], note_chars=int(90 / max(2, len(shown))))
            if i == 0:  # the note about a run that is not valid stands where the title would be
                axes.set_title("\n".join(textwrap.wrap(column.title, title_chars)), pad=14 if run and run.verdict else 6)
            if j == 0:
                axes.set_ylabel(styles[slug].label, rotation=0, ha="right", va="center", labelpad=6)
        panels[-1, j].set_xlabel("time since the first step (s)")
        panels[-1, j].margins(x=0.01)
    rates = [_steady_rate_bps([ways[0].of(samples[run.slug]) for run in column.runs.values()]) for column in shown]
    _scale(panels, rates, both_ways=len(ways) > 1)
    arrows = f"{ways[0]} (up) and {ways[1]} (down)" if len(ways) > 1 else str(ways[0])
    return f"{TITLE}, {arrows}"


def busiest(shown: list[Column]) -> list[str]:
    """Say that of several bottlenecks one is shown, if so."""
    names = {link["name"] for column in shown for run in column.runs.values() for link in queues.bottlenecks(run)}
    return [f"Of {len(names)} bottlenecks the one with most backlog."] if len(names) > 1 else []


def _panel(axes: Axes, run: Run | None, samples: pd.DataFrame | None, ways: list[Direction], look: SchemeStyle, note_chars: int) -> None:
    """Draw one run, each direction as a filled outline; its queue limit as a dashed level."""
    axes.axhline(0, color=style.MUTED, linewidth=0.6)
    if run is None or samples is None or samples.empty:
        axes.text(0.5, 0.75, "no samples", transform=axes.transAxes, ha="center", va="center", color=style.MUTED, fontsize=8)
        return
    for way, sign in zip(ways, (1, -1), strict=False):
        mine = way.of(samples).sort_values("t_s")
        if mine.empty:
            continue
        t, kilobytes = metrics.downsample_max(mine["t_s"].to_numpy(), mine["backlog_bytes"].to_numpy() / 1e3, BINS)
        axes.fill_between(t, sign * kilobytes, color=style.mix(look.colour, 0.15), linewidth=0, step="post")
        axes.step(t, sign * kilobytes, where="post", color=look.colour, linewidth=0.7, gid=f"{run.slug} {way}")
        limit = mine["queue_bytes"].max() / 1e3
        if not np.isnan(limit):
            axes.axhline(sign * limit, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), gid=f"{run.slug} limit {way}")
    if run.verdict:
        note = style.shorten(run.verdict, note_chars, lines=1)
        axes.text(1, 1.03, note, transform=axes.transAxes, ha="right", va="bottom", fontsize=7, color=style.INVALID, in_layout=False)
        axes.patch.set(hatch=style.INVALID_HATCH, edgecolor=style.GRID, linewidth=0)


def _scale(panels: np.ndarray, rates: list[float | None], both_ways: bool) -> None:
    """Set the shared limits and put milliseconds at each column's rate on the right."""
    tops = [abs(value) for axes in panels.flat for line in axes.lines for value in np.ravel(line.get_ydata())]
    ticks = 3 if len(panels) <= 6 else 1
    top = 1.12 * max([*tops, 0.001])
    panels[0, 0].set_ylim(-top if both_ways else 0, top)
    panels[0, 0].yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    panels[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g} kB" if value else "0"))
    for j, rate_bps in enumerate(rates):
        last = j == len(rates) - 1
        if rate_bps is None or (not last and len(set(rates)) == 1):
            continue
        for i in range(len(panels)):
            ms_per_kb = 8e6 / rate_bps
            side = panels[i, j].secondary_yaxis("right", functions=(_times(ms_per_kb), _times(1 / ms_per_kb)))
            side.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
            side.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g} ms" if value else "0"))


def _times(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda value: np.asarray(value) * factor


def _steady_rate_bps(samples: list[pd.DataFrame]) -> float | None:
    """Return the rate of a direction if it was one all the time."""
    rates = {float(rate) for frame in samples for rate in frame["rate_bps"].dropna().unique() if rate > 0}
    return rates.pop() if len(rates) == 1 else None


FIGURE = Drawing(
    "backlog",
    TITLE,
    "What waited in the bottleneck's queue over time, a row a scheme; a full queue loses packets.",
    70,
    reason,
    draw,
)
