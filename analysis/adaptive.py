"""Which schemes are adaptive: they follow the network, also where they are right to keep their ratio all the time."""

from __future__ import annotations

from collections.abc import Iterable

from analysis import metrics
from analysis.load import Run

FOLLOWING = ("netsense", "dc2", "budget")  # how the names of our schemes begin whose policy looks at the network; a manifest does not say


def adaptive_schemes(runs: Iterable[Run]) -> set[str]:
    """Return which schemes of some runs are adaptive: by its name, or, where the name is not one of ours, by what any of its runs did."""
    return {run.scheme for run in runs if run.scheme.startswith(FOLLOWING) or metrics.has_adapted(run.steps)}
