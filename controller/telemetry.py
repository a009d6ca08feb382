"""From a queue's record on the board to its state in the terms of people: utilisation, milliseconds of backlog, age. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from controller.board import Entry


@dataclass(frozen=True)
class LinkState:
    """One queue of one direction of a link at one moment; None: not known (yet)."""

    id: str  # the queue's name: bottleneck:s1->s2, or bottleneck:s1->s2/training
    link: str
    source: str
    target: str
    queue: str  # class; "" where the direction has one queue
    configured_bps: float
    sent_bps: float | None  # over about the last 100 ms
    utilisation: float | None  # a little over 1 after a pause, by the token bucket's burst; old / new rate for 100 ms after a cut
    backlog_bytes: int | None
    backlog_ms: float | None  # how long the backlog takes to leave at the configured rate
    queue_bytes: int  # limit
    dropped_packets: int | None  # since the queue was made
    drops_per_s: float | None
    overlimits: int | None  # times it had to wait for its turn, since the queue was made
    age_s: float | None  # of what the kernel said of the queue
    openflow: dict[str, Any] | None  # what the switch says of queue and port, once a second


def link_state(entry: Entry, now_s: float) -> LinkState:
    """Return a queue's state as of `now_s`, on the monotonic clock."""
    info, reading, configured_bps = entry.info, entry.queue, entry.configured_bps
    return LinkState(
        id=info.name,
        link=info.link,
        source=info.source,
        target=info.target,
        queue=info.queue,
        configured_bps=configured_bps,
        sent_bps=reading.rate_bps if reading else None,
        utilisation=_over(reading.rate_bps, configured_bps) if reading else None,
        backlog_bytes=reading.backlog_bytes if reading else None,
        backlog_ms=_over(reading.backlog_bytes * 8e3, configured_bps) if reading else None,
        queue_bytes=info.queue_bytes,
        dropped_packets=reading.dropped_packets if reading else None,
        drops_per_s=reading.drops_per_s if reading else None,
        overlimits=reading.overlimits if reading else None,
        age_s=max(0.0, now_s - reading.mono_s) if reading else None,
        openflow=asdict(entry.openflow) if entry.openflow else None,
    )


def _over(amount: float, configured_bps: float) -> float | None:
    return amount / configured_bps if configured_bps > 0 else None
