"""One look for all figures: sizes, colours, hatches, saving.

Figures are made without pyplot, so drawing leaves no state behind.
"""

from __future__ import annotations

import importlib
import math
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from fontTools.subset import Options
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from analysis.files import whole

Canvas = Figure | SubFigure
WIDTH_IN = 8.0  # 1200 pixels: legible at the width of a README
INVALID_HATCH = "xxxx"
REPLAY_HATCH = "...."
INK, MUTED, GRID, INVALID = "#222222", "#666666", "#dddddd", "#b3261e"
FOOTNOTE_PT = 7.0
LEGEND_HANDLE_PT = 36.0  # of a legend's entry beside its text, with the space to the next one
SHAPING = ("GDEF", "GPOS", "GSUB", "MATH", "kern")  # tables of a font
MAX_PIXELS = 60_000  # a side; the renderer ends at 65 536
LINE_STYLES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
# From Paul Tol's muted palette, safe for colour-blind readers; only for schemes the registry does not know
NEUTRAL_COLOURS = ("#332288", "#44AA99", "#117733", "#999933", "#CC6677", "#882255", "#AA4499", "#6699CC")
NEUTRAL_MARKERS = ("o", "s", "^", "D", "v", "P", "p")
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # nothing of ours has its ticks above: looking for them takes a tenth of the time
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "hatch.linewidth": 0.6,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,  # text in the PDF stays text
}


@dataclass(frozen=True)
class SchemeStyle:
    """How every figure shows a scheme."""

    label: str
    colour: str
    marker: str
    line: Any = "-"  # told apart by line when two variants of a scheme share a colour
    known: bool = True  # to the registry


def _registry() -> Any | None:
    """Return the scheme registry; results stay readable where only `analysis` is installed."""
    try:
        return importlib.import_module("workloads.schemes")
    except ImportError:
        return None


def scheme_style(slug: str, label: str | None = None) -> SchemeStyle:
    """Return the registry's style of a scheme, or a neutral one that is always the same for the same slug."""
    registry = _registry()
    name = slug
    while registry and name:  # a slug may end in parameters, which do not change the look: netsense-floor0.001
        try:
            known = registry.resolve(registry.parse_scheme(name))
            return SchemeStyle(label or known.label, known.colour, known.marker)
        except (LookupError, ValueError, TypeError):  # or be of a newer or a private testbed
            name = name.rpartition("-")[0]
    digest = zlib.crc32(slug.encode())
    colour, marker = NEUTRAL_COLOURS[digest % len(NEUTRAL_COLOURS)], NEUTRAL_MARKERS[digest // 16 % len(NEUTRAL_MARKERS)]
    return SchemeStyle(label or slug, colour, marker, known=False)


def scheme_styles(schemes: dict[str, str]) -> dict[str, SchemeStyle]:
    """Return the styles of schemes shown together (slug to label), variants of one colour told apart by their lines."""
    alone = {slug: scheme_style(slug, label) for slug, label in schemes.items()}
    spare = [colour for colour in NEUTRAL_COLOURS if colour not in {style.colour for style in alone.values()}]
    seen: Counter[str] = Counter()
    styles = {}
    for slug, style in alone.items():
        if not style.known and seen[style.colour] and spare:
            style = replace(style, colour=spare.pop(0))
        styles[slug] = replace(style, line=LINE_STYLES[seen[style.colour] % len(LINE_STYLES)])
        seen[style.colour] += 1
    return styles


@contextmanager
def look() -> Iterator[None]:
    """Use the house style inside the block."""
    with mpl.rc_context(RC):
        yield


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Return an empty figure whose parts keep clear of each other."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    cast(ConstrainedLayoutEngine, figure.get_layout_engine()).set(w_pad=0.06, h_pad=0.06, wspace=0.03, hspace=0.03)
    return figure


def footnote(figure: Figure, sentences: list[str]) -> None:
    """Write small print under the figure and keep its room clear."""
    width_in, height_in = figure.get_size_inches()
    columns = int(width_in * 72 / (FOOTNOTE_PT * 0.56))
    lines = textwrap.wrap("  ".join(sentences), columns)
    needed = (len(lines) * FOOTNOTE_PT * 1.3 + 8) / 72
    figure.set_size_inches(width_in, height_in + needed)
    share = needed / (height_in + needed)
    cast(ConstrainedLayoutEngine, figure.get_layout_engine()).set(rect=(0, share, 1, 1 - share))
    figure.text(
        0.08 / width_in, 0.05 / (height_in + needed), "\n".join(lines), fontsize=FOOTNOTE_PT, color=MUTED, va="bottom", linespacing=1.3
    )


def bar_look(style: SchemeStyle, workload: str, valid: bool) -> dict[str, Any]:
    """Return how a bar is filled: invalid ones crossed out in pale, replayed ones lighter and dotted."""
    if not valid:
        return {"facecolor": "white", "edgecolor": style.colour, "hatch": INVALID_HATCH, "linewidth": 0.8}
    if workload == "replay":
        return {"facecolor": mix(style.colour, 0.6), "edgecolor": style.colour, "hatch": REPLAY_HATCH, "linewidth": 0.8}
    return {"facecolor": style.colour, "edgecolor": style.colour, "linewidth": 0.8}


def mix(colour: str, white: float) -> tuple[float, float, float]:
    """Return a colour mixed with so much white."""
    red, green, blue = mpl.colors.to_rgb(colour)
    return (red + (1 - red) * white, green + (1 - green) * white, blue + (1 - blue) * white)


def shorten(text: str, width: int, lines: int = 2) -> str:
    """Break a note into at most so many lines; what is left out is in summary.csv."""
    return "\n".join(textwrap.wrap(text, width, max_lines=lines, placeholder=" …"))


def set_title(canvas: Canvas, text: str, entries: Sequence[Artist] = ()) -> None:
    """Write the title on the left, and what the marks mean under it, in as many rows as it takes."""
    width_in = canvas.bbox.width / canvas.figure.dpi  # type: ignore[union-attr]
    columns = _legend_columns([str(entry.get_label()) for entry in entries], 72 * (width_in - 0.1))
    rows = math.ceil(len(entries) / columns) if entries else 0
    canvas.suptitle(text + "\n" * rows, x=0.01, ha="left")  # the empty lines keep room for the entries
    if entries:
        inches = canvas.figure.dpi_scale_trans  # type: ignore[union-attr]
        below = canvas.transSubfigure + ScaledTranslation(0, -0.26, inches)
        legend = canvas.legend(handles=list(entries), loc="upper left", bbox_to_anchor=(0, 1), bbox_transform=below, ncols=columns)
        legend.set_in_layout(False)


def _legend_columns(labels: list[str], width_pt: float) -> int:
    """Return in how many columns entries fit side by side, no more than their rows need; matplotlib fills columns from the top down."""
    widths = [LEGEND_HANDLE_PT + 0.58 * RC["legend.fontsize"] * len(label) for label in labels]
    for rows in range(1, len(labels) + 1):
        columns = math.ceil(len(labels) / rows)
        if sum(max(part) for part in np.array_split(widths, columns)) <= width_pt:
            return columns
    return 1


def trace_look(style: SchemeStyle, valid: bool, place: int) -> dict[str, Any]:
    """Return how a run's line over time is drawn: pale and with hollow markers if it is not valid; markers of neighbours do not meet."""
    face = style.colour if valid else "white"
    look: dict[str, Any] = {
        "color": style.colour,
        "linestyle": style.line,
        "alpha": 1.0 if valid else 0.6,
        "linewidth": 1.3 if valid else 1.0,
    }
    look |= {"marker": style.marker, "markersize": 5, "markerfacecolor": face, "markeredgecolor": "white" if valid else style.colour}
    return look | {"markeredgewidth": 0.6, "markevery": (0.02 + 0.03 * (place % 5), 0.15)}


def scheme_line(style: SchemeStyle, label: str | None = None, valid: bool = True) -> Line2D:
    """Return a scheme's entry in the legend of a figure of lines; one that is not valid says so and has a hollow marker."""
    face, edge, note = (style.colour, "white", "") if valid else ("white", style.colour, " (not valid)")
    look: dict[str, Any] = {"color": style.colour, "linestyle": style.line, "marker": style.marker}
    return Line2D([], [], label=(label or style.label) + note, markerfacecolor=face, markeredgecolor=edge, **look)


def nothing(axes: Axes, reason: str) -> None:
    """Say on an empty panel why it is empty."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, textwrap.fill(reason, 36), ha="center", va="center", color=MUTED, transform=axes.transAxes)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure as PNG (150 dpi, fewer if it is too large for that) and PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    figure.set_dpi(min(150.0, MAX_PIXELS / max(figure.get_size_inches())))
    _ease_layout(figure)
    with look(), whole(paths[0]) as png, whole(paths[1]) as pdf:
        # Not by savefig, which lays out and draws everything twice for each file: half of a report's time
        FigureCanvasAgg(figure).print_png(png, pil_kwargs={"compress_level": 2})  # more takes half as long again, for 2 % less
        figure.set_layout_engine("none")  # what was found for the first file holds for the second
        with _fonts_without_shaping():
            FigureCanvasPdf(figure).print_pdf(pdf, metadata={"CreationDate": None})
    return paths


def _ease_layout(figure: Figure) -> None:
    """Take out of the layout what changes nothing in it, but is measured again and again: spines, which ticks enclose, and empty labels."""
    for axes in figure.axes:
        for spine in axes.spines.values():
            spine.set_in_layout(False)
        for axis in (axes.xaxis, axes.yaxis):
            if not axis.get_label_text():
                axis.set_label_coords(0.5, 0.5)


@contextmanager
def _fonts_without_shaping() -> Iterator[None]:
    """Embed fonts without their tables for shaping text, which take time to cut down: a PDF's glyphs are chosen and placed already."""
    usual = Options._drop_tables_default
    Options._drop_tables_default = [*usual, *SHAPING]
    try:
        yield
    finally:
        Options._drop_tables_default = usual
