"""What the bottleneck's queue held over time: a row a scheme, the same axes for all, in kB and in ms of waiting.

With traffic both ways the second direction hangs below the axis. Of several bottlenecks the one with most backlog is shown.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis import metrics, style, words
from analysis.load import Results, Run, dig
from analysis.style import Canvas, SchemeStyle

TITLE = "Backlog of the bottleneck's queue"
MAX_COLUMNS = 3
SCALE_SENTENCE = "Queue: dashed, its limit; right axis, the wait it means at the configured rate."
ROW_HEIGHT_IN = 1.0
BINS = 700  # about one a pixel of a full-width panel


@dataclass(frozen=True)
class Direction:
    """One way over a bottleneck link, with its configuration in the run at hand."""

    link: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


@dataclass(frozen=True)
class Column:
    """The runs of one cell and workload, a run a scheme."""

    title: str
    runs: dict[str, Run]


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if all(run.on_machines for run in results.runs):
        return "the queues between real machines are not sampled"
    if not any(words.bottlenecks(run) for run in results.runs):
        return "no run's network marks a bottleneck"
    return None if any(len(_training(run)) for run in results.runs) else "no run sampled its bottleneck's queue while training"


def draw(results: Results) -> Figure | None:
    """Draw a grid: schemes down, cells and workloads across."""
    if reason(results):
        return None
    with style.look():
        columns = _columns(results)
        shown = columns[:MAX_COLUMNS]
        rows = len(_schemes(results, shown))
        figure = style.new_figure(1.1 + ROW_HEIGHT_IN * rows, style.WIDTH_IN * (1 if len(shown) < 3 else 1.3))
        style.set_title(figure, draw_in(figure, results, style.scheme_styles(results.schemes), shown))
        extra = [SCALE_SENTENCE, f"Each of {BINS} stretches of time shows its largest backlog."]
        if len(columns) > len(shown):
            extra.append(f"First {len(shown)} of {len(columns)} cells.")
        style.footnote(figure, words.small_print(results, [run for column in shown for run in column.runs.values()], extra))
    return figure


def draw_in(
    canvas: Canvas, results: Results, styles: dict[str, SchemeStyle], columns: list[Column] | None = None, both_ways: bool = True
) -> str:
    """Draw the rows into a figure or a part of one, the first column only if none are given; return a title."""
    columns = columns or _columns(results)[:1]
    schemes = _schemes(results, columns)
    samples = {run.slug: _training(run) for column in columns for run in column.runs.values()}
    ways = _directions(pd.concat(samples.values(), ignore_index=True), columns)[: 2 if both_ways else 1]
    title_chars = int(84 / max(2, len(columns)))
    panels = canvas.subplots(len(schemes), len(columns), sharex="col", sharey=True, squeeze=False)
    for j, column in enumerate(columns):
        for i, slug in enumerate(schemes):
            axes = panels[i, j]
            run = column.runs.get(slug)
            _panel(axes, run, samples[run.slug] if run else None, ways, styles[slug], note_chars=int(90 / max(2, len(columns))))
            if i == 0:  # the note about a run that is not valid stands where the title would be
                axes.set_title("\n".join(textwrap.wrap(column.title, title_chars)), pad=14 if run and run.verdict else 6)
            if j == 0:
                axes.set_ylabel(styles[slug].label, rotation=0, ha="right", va="center", labelpad=6)
        panels[-1, j].set_xlabel("time since the first step (s)")
    _scale(panels, columns, schemes, ways)
    several = len({link["name"] for column in columns for run in column.runs.values() for link in words.bottlenecks(run)})
    arrows = f"{ways[0]} (up) and {ways[1]} (down)" if len(ways) > 1 else str(ways[0])
    return f"{TITLE}, {arrows}" + (f", the busiest of {several}" if several > 1 else "")


def _panel(axes: Axes, run: Run | None, samples: pd.DataFrame | None, ways: list[Direction], look: SchemeStyle, note_chars: int) -> None:
    """Draw one run, each direction as a filled outline; its queue limit as a dashed level."""
    axes.axhline(0, color=style.MUTED, linewidth=0.6)
    if run is None or samples is None or samples.empty:
        axes.text(0.5, 0.75, "no samples", transform=axes.transAxes, ha="center", va="center", color=style.MUTED, fontsize=8)
        return
    for way, sign in zip(ways, (1, -1), strict=False):
        mine = _of(samples, way).sort_values("t_s")
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


def _scale(panels: np.ndarray, columns: list[Column], schemes: list[str], ways: list[Direction]) -> None:
    """Set the shared limits and put milliseconds at the configured rate on the right."""
    tops = [abs(value) for axes in panels.flat for line in axes.lines for value in np.ravel(line.get_ydata())]
    ticks = 3 if len(schemes) <= 6 else 1
    top = 1.12 * max([*tops, 0.001])
    panels[0, 0].set_ylim(-top if len(ways) > 1 else 0, top)
    panels[0, 0].yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    panels[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g} kB" if value else "0"))
    rates = [_rate_bps(column, ways[0]) for column in columns]
    for j, rate_bps in enumerate(rates):
        last = j == len(columns) - 1
        if rate_bps is None or (not last and len(set(rates)) == 1):
            continue
        for i in range(len(schemes)):
            ms_per_kb = 8e6 / rate_bps
            side = panels[i, j].secondary_yaxis("right", functions=(_times(ms_per_kb), _times(1 / ms_per_kb)))
            side.yaxis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
            side.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g} ms" if value else "0"))


def _times(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda value: np.asarray(value) * factor


def _columns(results: Results) -> list[Column]:
    """Return a column a cell and workload, in order; of repeats the first valid one, else the first."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in results.runs:
        groups.setdefault((run.cell_key, run.workload), []).append(run)
    columns = []
    for (_, workload), runs in groups.items():
        chosen: dict[str, Run] = {}
        for run in sorted(runs, key=lambda run: (not run.valid, run.repeat)):
            chosen.setdefault(run.scheme, run)
        title = ", ".join(part for part in (words.cell_words(runs[0].cell), workload if len(results.workloads) > 1 else "") if part)
        columns.append(Column(title, chosen))
    return columns


def _schemes(results: Results, columns: list[Column]) -> list[str]:
    present = {slug for column in columns for slug in column.runs}
    return [slug for slug in results.schemes if slug in present]


def _training(run: Run) -> pd.DataFrame:
    """Return the samples of the bottlenecks from the first step to the end of the last."""
    names = {link["name"] for link in words.bottlenecks(run)}
    first = run.steps[run.steps["rank"] == 0]
    end = (first["t_s"] + first["step_s"]).max()
    links = run.links
    chosen = links[links["link"].isin(names) & (links["t_s"] >= 0) & (links["t_s"] <= end) & links["backlog_bytes"].notna()]
    at = ["t_s", "link", "source", "target"]
    if not chosen.duplicated(at).any():
        return chosen
    # a direction with classes has a queue for each, read at the same moment: what waits is their sum
    return chosen.groupby(at, as_index=False).agg({"backlog_bytes": "sum", "queue_bytes": "sum", "rate_bps": "max"})


def _directions(samples: pd.DataFrame, columns: list[Column]) -> list[Direction]:
    """Return the two directions of the bottleneck with most backlog; the second only if it ever held anything."""
    held = samples.groupby("link")["backlog_bytes"].sum()
    name = str(held.idxmax())
    link = next(link for column in columns for run in column.runs.values() for link in words.bottlenecks(run) if link["name"] == name)
    there, back = Direction(name, link["a"], link["b"]), Direction(name, link["b"], link["a"])
    peaks = {way: _of(samples, way)["backlog_bytes"].max() for way in (there, back)}
    if not peaks[there] > 0:
        there, back = back, there
    return [there, back] if peaks[back] > 0 else [there]


def _of(samples: pd.DataFrame, way: Direction) -> pd.DataFrame:
    return samples[(samples["link"] == way.link) & (samples["source"] == way.source) & (samples["target"] == way.target)]


def _rate_bps(column: Column, way: Direction) -> float | None:
    """Return the rate the direction was configured with at the start."""
    for run in column.runs.values():
        for link in words.bottlenecks(run):
            if link["name"] == way.link:
                rate = dig(link, "forward" if link["a"] == way.source else "backward", "rate_bps")
                return float(rate) if rate else None
    return None
