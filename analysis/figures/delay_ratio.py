"""How adaptive schemes answer delay: the time of each step's exchange, and the ratio they chose, over the same time.

The level of the compute is what an exchange can be hidden behind, and DC2's own target.
"""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import metrics, metrics_time, style, words
from analysis.adaptive import adaptive_schemes
from analysis.figures import marks, timelines
from analysis.figures.columns import MOST, Column, columns, left_out, one_of_repeats, schemes
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.style import SchemeStyle

TITLE = "Delay of the exchange and ratio of adaptive schemes"
PANEL_HEIGHT_IN = 1.9
SMOOTH_STEPS = 5  # of the running median
COMPUTE = {"color": style.MUTED, "linewidth": 1.2, "linestyle": (0, (1, 1.5))}


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    return None if _columns(results) else "no adaptive scheme made a step"


def draw(results: Results) -> Figure | None:
    """Draw a column a cell and workload: two panels over the same time."""
    if reason(results):
        return None
    with style.look():
        every = _columns(results)
        shown = every[:MOST]
        styles = style.scheme_styles(results.schemes)
        figure = style.new_figure(2 * PANEL_HEIGHT_IN + 1.2, style.WIDTH_IN * (1 if len(shown) < 3 else 1.3))
        panels = figure.subplots(2, len(shown), sharex="col", sharey="row", squeeze=False)
        told = [sentence for j, column in enumerate(shown) for sentence in _column(list(panels[:, j]), column, styles)]
        panels[0, 0].set_yscale("log")
        timelines.log_ticks(panels[0, 0], (1, 2, 5))
        panels[0, 0].set_ylabel("exchange (ms)")
        timelines.ratio_axis(list(panels[1]))
        timelines.time_axis(panels, shown, bool(told))
        figure.align_ylabels()
        entries = [*timelines.legend(schemes(results, shown), shown, styles), Line2D([], [], label="compute", **COMPUTE)]  # type: ignore[arg-type]
        style.set_title(figure, TITLE, entries)
        extra = [f"Exchange of the worker that took longest: pale, each step; full, the median of {SMOOTH_STEPS}.", *dict.fromkeys(told)]
        extra += [*one_of_repeats(shown), *left_out(len(every), len(shown))]
        style.footnote(figure, words.small_print(results, [run for column in shown for run in column.runs.values()], extra))
    return figure


def _columns(results: Results) -> list[Column]:
    """Return the columns with the runs of adaptive schemes that made a step, whether or not they changed their ratio there."""
    adaptive = adaptive_schemes(results.runs)
    made = []
    for column in columns(results):
        mine = {slug: [run for run in runs if _made_a_step(run)] for slug, runs in column.repeats.items() if slug in adaptive}
        made.append(Column(column.title, {slug: runs for slug, runs in mine.items() if runs}))
    return [column for column in made if column.repeats]


def _made_a_step(run: Run) -> bool:
    return len(metrics_time.exchange_over_time(run.steps)) > 0


def _column(panels: list[Axes], column: Column, styles: dict[str, SchemeStyle]) -> list[str]:
    """Draw one column and return its small print."""
    runs = list(column.runs.values())
    for place, run in enumerate(runs):
        look = style.trace_look(styles[run.scheme], run.valid, place)
        steps = metrics_time.exchange_over_time(run.steps)
        delays_ms = 1e3 * steps["exchange_s"]
        panels[0].plot(steps["t_s"], delays_ms, color=look["color"], linewidth=0.6, alpha=0.35, gid=f"{run.slug} each exchange")
        running = delays_ms.rolling(SMOOTH_STEPS, center=True, min_periods=1).median()
        panels[0].plot(steps["t_s"], running, gid=f"{run.slug} exchange", **look)
        timelines.draw_ratio(panels[1], run, look)
    compute_ms = 1e3 * min(metrics.median_part_s(run.steps, "compute") for run in runs)
    panels[0].axhline(compute_ms, gid="compute", **COMPUTE)  # type: ignore[arg-type]
    found = marks.changes(runs)
    marks.draw_changes(panels, found, styles)
    marks.draw_background(panels, runs)
    return marks.explain(found)


FIGURE = Drawing(
    "delay_ratio",
    TITLE,
    "What adaptive schemes see and do: how long each exchange took, and the share of the gradient they sent.",
    25,
    reason,
    draw,
)
