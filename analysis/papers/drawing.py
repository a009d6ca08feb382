"""Draw each claim as a row: the published range in grey, every value of ours as a point, the verdict beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from analysis import style
from analysis.papers.claims import Finding, Verdict

ROW_IN = 0.84
PUBLISHED, ASKED = "#c8c8c8", "#e8e8e8"
COLOURS: dict[Verdict, str] = {  # of Paul Tol's muted palette
    "reproduced": "#117733",
    "stronger": "#44AA99",
    "in part": "#DDAA33",
    "weaker": "#CC6677",
    "not reproduced": "#882255",
    "inconclusive": "#4477AA",
    "not measured": style.MUTED,
}
NOTE = (
    "Valid runs only. Bars: by how much a value may be off. A claim marked (recalled) is remembered from the paper's text: its digits are "
    "no yardstick. One marked (ours) was not published: it is what we ask."
)


def draw(findings: Sequence[Finding]) -> Figure:
    """Draw one row a claim, each on an axis of its own."""
    with style.look():
        figure = style.new_figure(0.8 + ROW_IN * max(1, len(findings)))
        panels = figure.subplots(max(1, len(findings)), 1, squeeze=False)[:, 0]
        if not findings:
            style.nothing(panels[0], "no paper was asked for")
        for axes, finding in zip(panels, findings, strict=False):
            _row(axes, finding)
        shown = dict.fromkeys(finding.verdict for finding in findings)
        entries = [Patch(facecolor=PUBLISHED, label="published"), Patch(facecolor=ASKED, label="what we ask")]
        entries += [Line2D([], [], linestyle="none", marker="o", color=COLOURS[verdict], label=verdict) for verdict in shown]  # type: ignore[misc]
        style.set_title(figure, "The papers' claims, and what was measured here", entries)
        style.footnote(figure, [NOTE])
    return figure


def _row(axes: Axes, finding: Finding) -> None:
    """Draw the published range as a band and our values as points; a bound is a band to the edge."""
    claim, colour = finding.claim, COLOURS[finding.verdict]
    low, high = claim.published.span()
    values = finding.values
    if claim.published.unit == "x":
        axes.set_xscale("log")
        far = 1.6 * max([low, high or low, *(sample.value + sample.margin for sample in finding.samples), 2.0])
        axes.set_xlim(min([1.0, low, *values]) / 1.4, far)
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    else:
        reach = 1.3 * max(2.0, abs(low), *(abs(sample.value) + sample.margin for sample in finding.samples))
        far = reach
        axes.set_xlim(-reach, reach)
        axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.xaxis.set_minor_locator(NullLocator())
    band = ASKED if claim.standing == "ours" else PUBLISHED
    axes.axvspan(low, high or far, color=band, linewidth=0, gid=f"{finding.paper.name} {claim.name} published")
    if high == low:
        axes.axvline(low, color=style.MUTED, linewidth=2.5)
    for sample in finding.samples:
        gid = f"{finding.paper.name} {claim.name} ours"
        axes.plot([sample.value], [0], marker="o", color=colour, markeredgecolor="white", gid=gid)
        least = axes.get_xlim()[0]  # on an axis of factors there is no 0
        axes.plot([max(least, sample.value - sample.margin), sample.value + sample.margin], [0, 0], color=colour, alpha=0.5)
    axes.set_yticks([])
    axes.set_ylim(-1, 1)
    axes.spines["left"].set_visible(False)
    unit = "" if claim.published.unit == "x" else f", {claim.published.unit}"
    standing = "" if claim.standing == "fact" else f" ({claim.standing})"
    said = f"{finding.paper.title.split(' (')[0]}, {claim.name}: {claim.says}{standing}{unit}"
    axes.set_ylabel(textwrap.fill(said, 44), rotation=0, ha="right", va="center", fontsize=7.5)
    ratio = "" if finding.ratio is None else f"\n{finding.ratio:.2f} of theirs"
    axes.text(1.01, 0.5, finding.verdict + ratio, transform=axes.transAxes, va="center", fontsize=8, color=colour, fontweight="bold")
    if finding.verdict != "reproduced":
        axes.set_xlabel(textwrap.fill(claim.differs, 92), loc="left", fontsize=6, color=style.MUTED)
