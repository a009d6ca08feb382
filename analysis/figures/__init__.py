"""One file a figure: `reason(results)` says why there is nothing to draw, `draw(results)` draws it.

A newcomer adds a file with these two functions and its name to FIGURES.
"""

from typing import Protocol

from matplotlib.figure import Figure

from analysis.figures import accuracy_time, backlog, bytes_step, heatmaps, overview, throughput
from analysis.load import Results


class Drawing(Protocol):
    """What a figure can be asked."""

    def reason(self, results: Results) -> str | None:
        """Say why there is nothing to draw, or None."""

    def draw(self, results: Results) -> Figure | None:
        """Draw it, or None."""


FIGURES: dict[str, Drawing] = {
    "accuracy_time": accuracy_time,
    "throughput": throughput,
    "bytes_step": bytes_step,
    "backlog": backlog,
    "overview": overview,
    "heatmap_throughput": heatmaps.THROUGHPUT,
    "heatmap_speedup": heatmaps.SPEEDUP,
    "heatmap_winner": heatmaps.WINNER,
}

__all__ = ["FIGURES"]
