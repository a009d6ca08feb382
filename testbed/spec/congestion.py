"""Which congestion control TCP uses where an experiment file names none, and what to know of the one it names. Pure.

CUBIC grows by the machine's clock, which slow time does not slow down, so after losses it recovers k times faster than without
dilation. Reno's every time is a round trip. An experiment of which any cell is dilated therefore has Reno in all its cells: they compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.spec.models import Experiment

USUAL, DILATED = "cubic", "reno"


def default(among_dilated: bool) -> str:
    """Return the congestion control of a cell for which the file names none, by whether any cell of its experiment is dilated."""
    return DILATED if among_dilated else USUAL


def substituted(experiment: Experiment) -> list[str]:
    """Say what the manifest says of a default that is not the usual one."""
    if experiment.transport.congestion_control is not None or experiment.congestion_control == USUAL:
        return []
    return [f"congestion control: {DILATED} in place of {USUAL}, which grows by a clock that dilation does not slow down"]


def warnings(experiments: Iterable[Experiment]) -> list[str]:
    """Say once of each congestion control that it was named for dilated time and does not scale with it."""
    named = {one.transport.congestion_control for one in experiments if one.dilation > 1} - {DILATED, None}
    return [
        f"transport.congestion_control: {name} keeps time by the machine's clock, so dilated steps with losses come out too short; "
        f"leave it out or use {DILATED} to compare them with undilated ones"
        for name in sorted(filter(None, named))
    ]
