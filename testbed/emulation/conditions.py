"""Carry out a timeline's changes on a booted network, each at its time or as its step begins, and tell when it was really in force."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from testbed import units
from testbed.emulation import adjust
from testbed.emulation.counters import realtime
from testbed.emulation.network import EmulatedNetwork
from testbed.spec.traces import UNLIMITED, RateValue
from testbed.timeline import Change, Timeline, plain
from topologies import Direction

Tell = Callable[[float, str, str, dict[str, Any]], None]  # when, what kind of event, in words, as data


class Conditions:
    """A run's changes that are still to come."""

    def __init__(self, network: EmulatedNetwork, timeline: Timeline, tell: Tell) -> None:
        """Change this network; nothing happens before `begin`."""
        self._network, self._tell = network, tell
        self._timed = deque(timeline.timed)
        self._stepped: dict[int, list[Change]] = defaultdict(list)
        for change in timeline.stepped:
            assert change.at_step is not None
            self._stepped[change.at_step].append(change)
        self._origin_s = math.inf

    @property
    def next_due_s(self) -> float:
        """Return when, by the monotonic clock, `act` has something to do."""
        return self._origin_s + (self._timed[0].at_s or 0.0) if self._timed else math.inf

    def step_began(self, step: int, mono_s: float) -> None:
        """Hear that the workers began a measured step; times count from the first."""
        if step == 0:
            self._origin_s = mono_s
        self._apply(self._stepped.pop(step, []))

    def act(self) -> None:
        """Do what is due."""
        due_s = time.monotonic() - self._origin_s
        due = list(takewhile(lambda change: (change.at_s or 0.0) <= due_s, self._timed))
        for _ in due:
            self._timed.popleft()
        self._apply(due)

    def _apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        began_s = time.monotonic()
        rates: dict[Direction, RateValue] = {}
        with realtime():
            for change in changes:
                directions = self._directions(change)
                if change.state == "up":
                    adjust.set_state(self._network, change.link, up=True)
                if change.rate_bps is not None:
                    rates |= dict.fromkeys(directions, change.rate_bps)
                if any(value is not None for value in (change.delay_s, change.jitter_s, change.loss)):
                    for direction in directions:
                        adjust.set_delay(self._network, direction, change.delay_s, change.jitter_s, change.loss)
                if change.state == "down":
                    adjust.set_state(self._network, change.link, up=False)
            adjust.set_rates(self._network, rates)
        now_s, factor = time.monotonic(), self._network.dilation
        for change in changes:
            meant = change.dilated(1 / factor)  # what the experiment says, of which the machine does a slower likeness
            data = {**plain(meant), "took_s": (now_s - began_s) / factor}
            if change.at_s is not None:
                data["late_s"] = (now_s - self._origin_s - change.at_s) / factor
            self._tell(now_s, "link_changed", in_words(meant), data)

    def _directions(self, change: Change) -> list[Direction]:
        link = next(link for link in self._network.description.links if link.name == change.link)
        ends = {"forward": [link.a], "backward": [link.b], "both": [link.a, link.b]}[change.direction]
        return [d for d in self._network.description.directions() if d.link == change.link and d.source in ends]


def in_words(change: Change) -> str:
    """Say what changes."""
    said = []
    if change.rate_bps is not None:
        said.append("rate unlimited" if change.rate_bps == UNLIMITED else f"rate {units.format_rate(float(change.rate_bps))}")
    if change.delay_s is not None:
        said.append(f"delay {units.format_time(change.delay_s)}")
    if change.jitter_s is not None:
        said.append(f"jitter {units.format_time(change.jitter_s)}")
    if change.loss is not None:
        said.append(f"loss {units.format_fraction(change.loss)}")
    if change.state is not None:
        said.append(change.state)
    where = change.link if change.direction == "both" else f"{change.link} ({change.direction})"
    return f"{where}: {', '.join(said)}"
