"""The four figures of an experiment on one page, for a README; of a sweep, the first cell."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analysis import style, summary, words
from analysis.figures import accuracy_time, backlog, bars, bytes_step, columns, facets, throughput
from analysis.figures.registry import Drawing
from analysis.load import Results


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    return throughput.reason(results)


def draw(results: Results) -> Figure | None:
    """Draw accuracy, throughput, bytes and backlog in a square."""
    if reason(results):
        return None
    with style.look():
        parts = [(title, part) for title, part in facets.split(results) if not reason(part)]
        title, part = parts[0]
        table, styles = summary.summarise(results), style.scheme_styles(results.schemes)
        shown = table[table["run"].isin([run.slug for run in part.runs])]
        figure = style.new_figure(2 * max(3.0, 0.6 + 0.75 * bars.height_in(part)), 9.6)
        (upper_left, upper_right), (lower_left, lower_right) = np.asarray(figure.subfigures(2, 2, wspace=0.03, hspace=0.03))

        style.set_title(upper_left, accuracy_time.TITLE)
        if why := accuracy_time.reason(part):
            style.nothing(upper_left.subplots(), why)
        else:
            accuracy_time.draw_on(upper_left.subplots(), part, table, styles)

        style.set_title(upper_right, throughput.TITLE, throughput.legend_entries(part, shown))
        throughput.draw_on(upper_right.subplots(), part, table, styles, bars.QUARTER)

        style.set_title(lower_left, bytes_step.TITLE, [] if bytes_step.reason(part) else bytes_step.legend_entries(part, shown))
        if why := bytes_step.reason(part):
            style.nothing(lower_left.subplots(), why)
        else:
            bytes_step.draw_on(lower_left.subplots(), part, table, styles, bars.QUARTER)

        if why := backlog.reason(part):
            style.set_title(lower_right, backlog.TITLE)
            style.nothing(lower_right.subplots(), why)
        else:
            style.set_title(lower_right, backlog.draw_in(lower_right, part, styles, both_ways=False))

        extra = [f"Shown: {title}, the first of {len(parts)} cells."] if len(parts) > 1 else []
        extra += [*throughput.explain(part, shown), bytes_step.RATIO_SENTENCE]
        if not backlog.reason(part):
            extra += [backlog.SCALE_SENTENCE, *backlog.busiest(columns.columns(part)[:1])]
        style.footnote(figure, words.small_print(results, part.runs, extra))
    return figure


FIGURE = Drawing(
    "overview",
    "At a glance",
    "Accuracy, throughput, bytes and the bottleneck's queue on one page; of a sweep, its first cell.",
    0,
    reason,
    draw,
)
