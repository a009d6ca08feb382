"""Where a step's time goes: compute, encoding, waiting for the last worker, exchange, decoding; a bar a scheme, cut into its parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis import metrics, style, summary, words
from analysis.figures import bars
from analysis.figures.columns import columns
from analysis.figures.registry import Drawing
from analysis.load import Results, Run
from analysis.style import SchemeStyle

TITLE = "Where the time of a step goes"
# Paul Tol's medium-contrast palette, which keeps its order in grey
COLOURS = {"compute": "#004488", "encode": "#EECC66", "idle": "#DDDDDD", "exchange": "#6699CC", "decode": "#997700"}
NAMES = {"idle": "waiting for the last worker"}
SENTENCE = "Means over steps, workers and repeats; what the network hid behind compute is in none of the parts."


def reason(results: Results) -> str | None:
    """Say why there is nothing to draw, or None."""
    if not any(len(run.steps) for run in results.runs):
        return "no run has a measured step"
    return None if any(_is_cut(run) for run in results.runs) else "no run recorded every part of its steps"


def draw(results: Results) -> Figure | None:
    """Draw one panel a cell."""
    return bars.page(results, reason, draw_on, TITLE, legend_entries, _explain)


def _explain(results: Results, table: pd.DataFrame) -> list[str]:
    uncut = sum(len(run.steps) > 0 and not _is_cut(run) for run in results.runs)
    said = [f"Not shown: {uncut} run{'s' * (uncut > 1)} that did not record every part of a step."] if uncut else []
    return [SENTENCE, *["Replay sleeps its compute."] * ("replay" in results.workloads), *said]


def draw_on(
    axes: Axes, results: Results, table: pd.DataFrame, styles: dict[str, SchemeStyle], room: bars.Room = bars.WIDE
) -> tuple[float, float]:
    """Draw the bars of one cell, given the whole summary; return the limits its axis needs."""
    mine = summary.by_scheme(table[table["run"].isin([run.slug for run in results.runs])])
    repeats = {(slug, runs[0].workload): runs for column in columns(results) for slug, runs in column.repeats.items()}
    notes = bars.Notes(axes, room)
    for place, thick, row in bars.places(results, mine):
        every = [_parts_s(run) for run in repeats[row["scheme"], row["workload"]] if _is_cut(run)]
        if not every:
            continue
        left_ms = 0.0
        for part in metrics.PARTS:
            width_ms = 1e3 * float(np.mean([parts[part] for parts in every]))
            look = _look(part, bool(row["valid"]))
            axes.barh(place, width_ms, left=left_ms, height=thick * 0.9, gid=f"{row['run']} {part}", **look)
            left_ms += width_ms
        warning = bars.verdict(results, row, room)
        said = words.quantity(left_ms / 1e3, "s") + f", {row['workload']}" * (len(results.workloads) > 1)
        notes.write(left_ms, place, warning or said, style.INVALID if warning else style.INK)
    bars.frame(axes, list(results.schemes), styles)
    limits = (0.0, notes.reach())
    axes.set_xlim(*limits)
    axes.set_xlabel("ms a step")
    return limits


def _parts_s(run: Run) -> dict[str, float]:
    return run.once("breakdown", lambda run: metrics.breakdown_s(run.steps))


def _is_cut(run: Run) -> bool:
    """Tell whether a run's mean step can be cut into parts; an older testbed did not record all of them."""
    return not any(math.isnan(part_s) for part_s in _parts_s(run).values())


def legend_entries(results: Results, table: pd.DataFrame) -> list[Artist]:
    """Return what the colours mean."""
    entries: list[Artist] = [Patch(label=NAMES.get(part, part), **_look(part, True)) for part in metrics.PARTS]
    return entries + bars.legend_entries(results, table)[-1:] * bool((~table["valid"].fillna(True)).any())


def _look(part: str, valid: bool) -> dict[str, Any]:
    if valid:
        return {"facecolor": COLOURS[part], "edgecolor": "white", "linewidth": 0.4}
    return {"facecolor": style.mix(COLOURS[part], 0.6), "edgecolor": style.MUTED, "linewidth": 0.4, "hatch": style.INVALID_HATCH}


FIGURE = Drawing(
    "breakdown",
    TITLE,
    "The mean step of each scheme, cut into its parts; compression trades exchange for encoding and decoding.",
    40,
    reason,
    draw,
)
