"""One file a figure: `reason(results)` says why there is nothing to draw, `draw(results)` draws it, a `Drawing` says its name and place.

A newcomer adds such a file to this folder, nothing else; FIGURES finds it.
"""

from analysis.figures.registry import Drawing, find

FIGURES: dict[str, Drawing] = find(__name__, list(__path__))

__all__ = ["FIGURES", "Drawing"]
