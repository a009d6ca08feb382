"""What happened to the network while a run trained, marked on panels that share a time axis: changed links, background traffic."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis import background, metrics_time, style, words
from analysis.load import Run
from analysis.style import SchemeStyle
from analysis.summary import number

SAME_S = 0.5  # a change at about the same time in every run is marked once
MOST_LABELS = 8
MOST_LINES = 40  # beyond it the rate itself is all that can be read
LABEL_PT = 7.5
SLANT = 35.0  # degrees
SHADE = "#eee3c8"


@dataclass(frozen=True)
class Change:
    """A change of a link; `scheme` where it came at another time in other runs, as one by the number of a step does."""

    t_s: float
    link: str
    text: str
    scheme: str | None = None


def changes(runs: list[Run]) -> list[Change]:
    """Return what was done to links while training, of runs side by side; the name of the link changed most often goes without saying."""
    times: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for run in runs:
        seen: Counter[tuple[str, str]] = Counter()
        events = run.events
        inside = (events["t_s"] > 0) & (events["t_s"] < metrics_time.end_s(run.steps))
        for _, event in events[inside & (events["kind"] == "link_changed")].sort_values("t_s").iterrows():
            link, text = _said(event["data"], str(event["text"]))
            seen[link, text] += 1
            times[link, text, seen[link, text]][run.scheme] = float(event["t_s"])
    often = Counter(link for link, _, _ in times).most_common(1)
    found = []
    for (link, text, _), by_scheme in times.items():
        moments = list(by_scheme.values())
        said = text if link == often[0][0] else f"{link}: {text}"
        if max(moments) - min(moments) <= SAME_S:
            found.append(Change(float(np.median(moments)), link, said))
        else:
            found += [Change(t_s, link, said, scheme) for scheme, t_s in by_scheme.items()]
    return sorted(found, key=lambda change: change.t_s)


def draw_changes(panels: list[Axes], found: list[Change], styles: dict[str, SchemeStyle]) -> None:
    """Draw a line through all panels at each change and say above the first what it was; too many are left to the rate's own line."""
    if len(found) > MOST_LINES:
        return
    place_s, apart_s = -math.inf, _apart_s(panels[0])
    for change in found:
        colour = styles[change.scheme].colour if change.scheme in styles else style.MUTED
        for axes in panels:
            axes.axvline(change.t_s, color=colour, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1, gid=f"change {change.text}")
        if len(found) <= MOST_LABELS:
            place_s = max(change.t_s, place_s + apart_s)
            at = panels[0].get_xaxis_transform()
            said = panels[0].annotate(change.text, (place_s, 1), xycoords=at, xytext=(0, 3), textcoords="offset points", rotation=SLANT)
            said.set(ha="left", va="bottom", rotation_mode="anchor", fontsize=LABEL_PT, color=colour)


def _apart_s(axes: Axes) -> float:
    """Return how far apart in time slanted words must begin so as not to touch."""
    columns = axes.get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    width_in = 0.85 * axes.figure.get_size_inches()[0] / columns  # type: ignore[union-attr]
    needed_in = 1.3 * LABEL_PT / 72 / math.sin(math.radians(SLANT))
    return axes.dataLim.x1 * needed_in / width_in


def draw_background(panels: list[Axes], runs: list[Run]) -> list[str]:
    """Shade the times of background traffic, which is the same for every run, and return who sent to whom."""
    found = next((found for run in runs if (found := background.periods(background.read(run)))), [])
    for start_s, end_s, text in found:
        for axes in panels:
            axes.axvspan(start_s, end_s, facecolor=SHADE, alpha=0.6, linewidth=0, zorder=0.2, gid=f"background {text}")
    return list(dict.fromkeys(text for _, _, text in found))


def explain(found: list[Change]) -> list[str]:
    """Return the small print about changes."""
    if len(found) > MOST_LINES:
        return [f"{len(found)} changes of links, not marked."]
    links = dict.fromkeys(change.link for change in found if not change.text.startswith(f"{change.link}: "))
    others = ", or the link named" if any(change.link not in links for change in found) else ""
    sentences = [f"Dashed: {' '.join(links)} was changed{others}."] if links else []
    return sentences + ["In a scheme's colour: it came then in that run."] * any(change.scheme for change in found)


def _said(data: Any, text: str) -> tuple[str, str]:
    """Return which link was changed, and in a few words how, from the event's data where they can be read."""
    try:
        told = json.loads(data) if isinstance(data, str) else {}
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    says = {
        "rate_bps": lambda value: "no rate limit" if np.isnan(value) else words.quantity(value, "bit/s"),
        "delay_s": lambda value: f"delay {words.quantity(value, 's')}",
        "jitter_s": lambda value: f"jitter {words.quantity(value, 's')}",
        "loss": lambda value: f"loss {100 * value:.3g} %",
    }
    parts = [say(number(told[key])) for key, say in says.items() if key in told]
    if "state" in told:
        parts.append(str(told["state"]))
    way = {"forward": " →", "backward": " ←"}.get(str(told.get("direction")), "")
    return str(told.get("link", "a link")) + way, ", ".join(parts) or text
