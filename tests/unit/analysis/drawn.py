"""What a figure shows, by the names its artists carry."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text


def panel(figure: Figure, label: str) -> Axes:
    """Return the only panel with an axis of this label."""
    (found,) = [axes for axes in figure.axes if label in (axes.get_xlabel(), axes.get_ylabel())]
    return found


def lines(drawn: Figure | Axes) -> dict[str, Line2D]:
    return {str(line.get_gid()): line for axes in _panels(drawn) for line in axes.lines if line.get_gid()}


def xy(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata(), float).tolist(), np.asarray(line.get_ydata(), float).tolist()


def bars(drawn: Figure | Axes) -> dict[str, Rectangle]:
    return {str(bar.get_gid()): bar for axes in _panels(drawn) for bar in axes.patches if isinstance(bar, Rectangle) and bar.get_gid()}


def texts(figure: Artist) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def _panels(drawn: Figure | Axes) -> list[Axes]:
    return [drawn] if isinstance(drawn, Axes) else drawn.axes
