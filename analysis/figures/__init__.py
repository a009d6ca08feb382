"""One file a figure: `reason(results)` says why there is nothing to draw, `draw(results)` draws it.

A newcomer adds a file with these two functions and its name to FIGURES.
"""

from analysis.figures import accuracy_time, backlog, bytes_step, overview, throughput

FIGURES = {
    "accuracy_time": accuracy_time,
    "throughput": throughput,
    "bytes_step": bytes_step,
    "backlog": backlog,
    "overview": overview,
}

__all__ = ["FIGURES"]
