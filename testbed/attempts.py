"""How a run stands by what its folder says: done, due, or failed too often to be tried again unasked. Pure.

An attempt that was cut short from outside (interrupted, killed, no room on the disk) is no fault of the run: it does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ATTEMPTS = 2  # a run that failed or was not faithful is done once more; the first is kept in its folder `earlier`
PATIENT_ATTEMPTS = 4  # by one command, while it is the machine's host that keeps a run from being faithful: it takes the processors away

State = Literal["done", "due", "left"]


@dataclass(frozen=True)
class Standing:
    """Where a run stands: `left` has failed as often as a run may."""

    state: State
    tries: int  # how often it may be tried now
    history: tuple[dict[str, Any], ...] = ()  # of attempts that came to an end of their own, oldest first


def history(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """List the attempts that a manifest tells of, its own included if it counts."""
    earlier = tuple(manifest.get("earlier_attempts") or ())
    if manifest.get("status") not in ("complete", "failed") or manifest.get("cut_short"):
        return earlier
    return (*earlier, {"attempt": len(earlier) + 1, **{key: manifest.get(key) for key in ("status", "reason", "invalid_reasons")}})


def standing(own: Mapping[str, Any] | None, earlier: Mapping[str, Any] | None = None, retry: bool = False) -> Standing:
    """Judge a run by its own manifest and, where a kill left it without one, by that of the attempt before.

    `retry` gives a run that failed too often all its attempts again.
    """
    if own is None:
        known = history(earlier or {})
        return Standing("due", max(1, ATTEMPTS - len(known)), known)
    known = history(own)
    ended = own.get("status") in ("complete", "failed") and not own.get("cut_short")
    if own.get("status") == "complete" and (own.get("valid") or len(known) >= ATTEMPTS):
        return Standing("done", 0, known)
    if ended and len(known) >= ATTEMPTS:
        return Standing("due", ATTEMPTS, known) if retry else Standing("left", 0, known)
    return Standing("due", max(1, ATTEMPTS - len(known)), known)
