"""What a figure shows, by the names its artists carry."""

from __future__ import annotations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text


def lines(figure: Figure) -> dict[str, Line2D]:
    return {str(line.get_gid()): line for axes in figure.axes for line in axes.lines if line.get_gid()}


def xy(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata(), float).tolist(), np.asarray(line.get_ydata(), float).tolist()


def bars(figure: Figure) -> dict[str, Rectangle]:
    return {str(bar.get_gid()): bar for axes in figure.axes for bar in axes.patches if isinstance(bar, Rectangle) and bar.get_gid()}


def texts(figure: Artist) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))
