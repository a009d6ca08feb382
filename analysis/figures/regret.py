"""Regret: how much longer an adaptive scheme takes to an accuracy than the best of the fixed ratios that were tried, the oracle."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import pairs, style, words
from analysis.figures import bars, facets
from analysis.figures.columns import left_out
from analysis.figures.registry import Drawing
from analysis.load import Results
from analysis.style import SchemeStyle

TITLE = "Time to accuracy, and regret against the best fixed ratio"
MOST_PANELS = 6


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if "train" not in results.workloads:
        return "nothing was trained"
    regrets = _found(results).regrets
    if regrets.empty:
        return "no adaptive scheme was trained"
    if not (regrets["candidates"] + regrets["excluded"]).any():
        return f"no fixed ratio ({pairs.FIXED}...) was trained beside an adaptive scheme"
    return None if regrets["oracle"].any() else "no fixed ratio reached the target with more than half of its seeds"


def draw(results: Results) -> Figure | None:
    """Draw one panel for each cell that has an oracle."""
    if reason(results):
        return None
    found = _found(results)
    with style.look():
        cells = list(dict.fromkeys(found.regrets.loc[found.regrets["oracle"] != "", "cell_key"]))
        shown = cells[:MOST_PANELS]
        schemes = {slug: label for slug, label in results.schemes.items() if slug in set(found.times["scheme"])}
        styles = style.scheme_styles(schemes)
        figure, panels = facets.grid(len(shown), 0.9 + 0.5 * len(schemes), max_columns=2)
        room = bars.WIDE if len(shown) == 1 else bars.NARROW
        limits = []
        for axes, cell in zip(panels, shown, strict=True):
            limits.append(_panel(axes, pairs.of_cell(found, cell), list(schemes), styles, room))
        facets.tidy(panels, limits)
        oracle = Line2D([], [], color=style.INK, linestyle="--", linewidth=1.0, label="best fixed ratio")
        seed = Line2D([], [], linestyle="none", marker="o", markersize=4, markerfacecolor="white", markeredgecolor=style.INK, label="a run")
        style.set_title(figure, TITLE, [oracle, seed])
        extra = ["Medians over valid repeats; a run that did not get there counts as later than any that did."]
        extra += ["The best fixed ratio is that of the least median, of those that were tried and have as many valid repeats."]
        extra += left_out(len(cells), len(shown))
        trained = [run for run in results.runs if run.workload == "train"]
        style.footnote(figure, words.small_print(results, trained, extra))
    return figure


def _panel(axes: Axes, cell: pairs.Comparison, schemes: list[str], styles: dict[str, SchemeStyle], room: bars.Room) -> tuple[float, float]:
    """Draw the bars of one cell; return the limits its axis needs."""
    regret: dict[str, float] = dict(zip(cell.regrets["scheme"], cell.regrets["regret"], strict=True))
    oracle, best_s = str(cell.regrets["oracle"].iloc[0]), float(cell.regrets["oracle_s"].iloc[0])
    notes = bars.Notes(axes, room)
    for row in cell.times.to_dict("records"):
        slug, median_s = str(row["scheme"]), float(row["median_s"])
        place = schemes.index(slug)
        runs = cell.runs[(cell.runs["scheme"] == slug) & cell.runs["valid"] & cell.runs["time_s"].notna()]
        if not math.isnan(median_s):
            axes.barh(place, median_s, height=0.62, gid=slug, **style.bar_look(styles[slug], "train", valid=True))
        axes.plot(runs["time_s"], [place] * len(runs), "o", markersize=4, gid=f"{slug} runs", color="white", markeredgecolor=style.INK)
        end_s = max([0.0 if math.isnan(median_s) else median_s, *runs["time_s"]])
        notes.write(end_s, place, _note(row, slug == oracle, regret.get(slug)))
    axes.axvline(best_s, color=style.INK, linestyle="--", linewidth=1.0, zorder=3, gid=f"oracle {oracle}")
    bars.frame(axes, schemes, styles)
    axes.set_title(str(cell.times["cell"].iloc[0]))
    axes.set_xlabel(f"training time to {100 * float(cell.times['target'].iloc[0]):.3g} % accuracy (s)")
    return 0.0, notes.reach()


def _note(row: pairs.Row, is_oracle: bool, regret: float | None) -> str:
    """Say how long it took, and what that means."""
    if math.isnan(row["median_s"]):
        return words.reached_words(row["reached"], row["seeds"]) if row["seeds"] else "no valid run"
    said = f"{row['median_s']:.1f} s"
    if is_oracle:
        return f"{said}, the best fixed ratio"
    return said if regret is None or pd.isna(regret) else f"{said}, regret {100 * regret:+.0f} %"


def _found(results: Results) -> pairs.Comparison:
    return results.once("comparison", lambda mine: pairs.compare([mine]))


FIGURE = Drawing(
    "regret",
    TITLE,
    "How long each scheme trained until it was accurate enough; dashed is the fixed ratio one would have chosen, had one known.",
    12,
    reason,
    draw,
)
