"""What happens to the network, and when: an experiment's conditions spelt out as single changes and flows.

Pure, and the same for the same seed. Times count from the start of the measured steps; whatever a change leaves None stays as it is.
A rate of 0 lets nothing pass while the queue keeps what it holds; a link that is down loses what is sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from typing import Any, Literal

from testbed.spec import Experiment, mahimahi
from testbed.spec.background import Background
from testbed.spec.condition_list import Condition
from testbed.spec.conditions import Bounds, Mahimahi, OnLink, Ramp, Redraw, Repeated, Span, Step, Trace, Walk
from testbed.spec.traces import UNLIMITED, RateValue
from topologies import Network

__all__ = ["UNLIMITED", "BackgroundFlow", "Change", "Timeline", "dilated", "timeline"]

DIGITS = 9  # of times, in seconds
MARGIN, MARGIN_S = 2.0, 60.0  # how much longer than its budget a run can be
LONGEST_S = 2 * 3600.0  # without a budget in seconds; conditions that go on for ever end then


@dataclass(frozen=True)
class Change:
    """One change of one link."""

    link: str
    direction: Literal["both", "forward", "backward"] = "both"  # forward: from the link's a to its b
    at_s: float | None = None  # either a time
    at_step: int | None = None  # or a measured step, from 0, before which it happens
    rate_bps: RateValue | None = None  # UNLIMITED: as fast as the machine
    delay_s: float | None = None
    jitter_s: float | None = None
    loss: float | None = None
    state: Literal["up", "down"] | None = None

    def dilated(self, factor: float) -> Change:
        """Return the change as it happens where everything takes `factor` times as long."""
        return replace(
            self,
            at_s=_times(self.at_s, factor),
            rate_bps=self.rate_bps if self.rate_bps == UNLIMITED else _times(self.rate_bps, 1 / factor),
            delay_s=_times(self.delay_s, factor),
            jitter_s=_times(self.jitter_s, factor),
        )


@dataclass(frozen=True)
class BackgroundFlow:
    """Flows between two hosts that begin and end together."""

    start_s: float
    stop_s: float
    source: str
    target: str
    protocol: Literal["tcp", "udp"] = "tcp"
    flows: int = 1
    rate_bps: float | None = None  # of each flow, UDP only
    dscp: int | None = None

    def dilated(self, factor: float) -> BackgroundFlow:
        """Return the flows as they are where everything takes `factor` times as long."""
        return replace(self, start_s=self.start_s * factor, stop_s=self.stop_s * factor, rate_bps=_times(self.rate_bps, 1 / factor))


@dataclass(frozen=True)
class Timeline:
    """Changes by time, then those by step; flows by their start."""

    changes: tuple[Change, ...] = ()
    flows: tuple[BackgroundFlow, ...] = ()

    @property
    def timed(self) -> tuple[Change, ...]:
        """Return the changes that happen at a time."""
        return tuple(change for change in self.changes if change.at_s is not None)

    @property
    def stepped(self) -> tuple[Change, ...]:
        """Return the changes that happen before a step."""
        return tuple(change for change in self.changes if change.at_step is not None)

    def steps(self) -> list[int]:
        """Return the measured steps before which something happens."""
        return sorted({change.at_step for change in self.changes if change.at_step is not None})

    def delayed_links(self) -> frozenset[str]:
        """Return the links that need a delay element at some time, though they may begin without delay, jitter and loss."""
        return frozenset(c.link for c in self.changes if c.delay_s or c.jitter_s or c.loss)

    @property
    def is_rough(self) -> bool:
        """Tell whether frames are to jitter or be lost at some time."""
        return any(change.jitter_s or change.loss for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"changes": [plain(change) for change in self.changes], "flows": [plain(flow) for flow in self.flows]}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Timeline:
        """Read it back."""
        return cls(tuple(Change(**change) for change in raw["changes"]), tuple(BackgroundFlow(**flow) for flow in raw["flows"]))


def timeline_of(experiment: Experiment, seed: int) -> Timeline:
    """Spell out an experiment's conditions as far as one of its runs can last: evaluations come on top of the budget."""
    seconds = experiment.workload.budget.seconds
    horizon_s = LONGEST_S if seconds is None else MARGIN * seconds + MARGIN_S
    return timeline(experiment.conditions, experiment.network(seed), seed, horizon_s)


def dilated(given: Timeline, factor: float) -> Timeline:
    """Return the same changes and flows where everything takes `factor` times as long; what happens before a step still does."""
    changes = tuple(change.dilated(factor) for change in given.changes)
    return Timeline(changes, tuple(flow.dilated(factor) for flow in given.flows))


def timeline(conditions: Sequence[Condition], network: Network, seed: int, horizon_s: float) -> Timeline:
    """Spell out the conditions up to the horizon, after which nothing happens any more; changes by step are all there."""
    changes: list[Change] = []
    flows: list[BackgroundFlow] = []
    for i, condition in enumerate(conditions):
        if isinstance(condition, Background):
            flows += [flow for flow in _flows(condition, horizon_s) if flow.start_s < horizon_s]
        else:
            made = _changes(condition, network, random.Random(f"{seed}/{i}"), horizon_s)
            changes += [change for change in made if change.at_s is None or change.at_s < horizon_s]
    changes.sort(key=lambda change: (change.at_s is None, change.at_s or 0.0, change.at_step or 0))
    return Timeline(tuple(changes), tuple(sorted(flows, key=lambda flow: flow.start_s)))


def _changes(condition: Condition, network: Network, draw: random.Random, horizon_s: float) -> Iterable[Change]:
    if isinstance(condition, Step):
        return [Change(**condition.model_dump())]
    if isinstance(condition, Ramp):
        return _ramp(condition)
    if isinstance(condition, Redraw):
        return _redraw(condition, draw, horizon_s)
    if isinstance(condition, Walk):
        return _walk(condition, network, draw, horizon_s)
    if isinstance(condition, Trace):
        return _trace(condition, horizon_s)
    assert isinstance(condition, Mahimahi)
    return _mahimahi(condition, horizon_s)


def _change(condition: OnLink, at_s: float, **values: Any) -> Change:
    return Change(condition.link, condition.direction, round(at_s, DIGITS), **values)


def _ticks(condition: Repeated, horizon_s: float) -> Iterator[float]:
    """Yield the times of a condition that repeats: from its beginning on, short of its end."""
    times_s = (condition.from_s + i * condition.every_s for i in count())
    return takewhile(lambda at_s: round(at_s, DIGITS) < min(condition.end_s, horizon_s), times_s)


def _ramp(condition: Ramp) -> Iterator[Change]:
    for at_s in [*_ticks(condition, condition.end_s), condition.end_s]:
        done = (at_s - condition.from_s) / (condition.end_s - condition.from_s)
        yield _change(condition, at_s, **{name: first * (1 - done) + last * done for name, (first, last) in condition.ramp.given().items()})


def _redraw(condition: Redraw, draw: random.Random, horizon_s: float) -> Iterator[Change]:
    for at_s in _ticks(condition, horizon_s):
        yield _change(condition, at_s, **{name: draw.uniform(low, high) for name, (low, high) in condition.redraw.given().items()})


def _walk(condition: Walk, network: Network, draw: random.Random, horizon_s: float) -> Iterator[Change]:
    link = next(link for link in network.links if link.name == condition.link)
    spec = link.backward if condition.direction == "backward" else link.forward
    paths = {name: _positions(bounds, getattr(spec, name), draw) for name, bounds in condition.walk.given().items()}
    for at_s in _ticks(condition, horizon_s):
        yield _change(condition, at_s, **{name: next(path) for name, path in paths.items()})


def _positions(bounds: Bounds[float], start: float | None, draw: random.Random) -> Iterator[float]:
    """Walk from the start, or from the bound next to it; a step over a bound is turned back."""
    low, high = bounds.between
    value = min(max(high if start is None else start, low), high)
    while True:
        yield value
        value += draw.choice((-bounds.step, bounds.step))
        value = 2 * low - value if value < low else 2 * high - value if value > high else value
        value = min(max(round(value, 12), low), high)


def _trace(condition: Trace, horizon_s: float) -> Iterator[Change]:
    table = condition.trace
    starts_s = (condition.from_s + i * table.period_s for i in count()) if condition.loop else [condition.from_s]
    for start_s in takewhile(lambda start_s: start_s < horizon_s, starts_s):
        for row in table.rows:
            values = {name: value for name, value in vars(row).items() if name != "t_s" and value is not None}
            if values and _within(condition, start_s + row.t_s):
                yield _change(condition, start_s + row.t_s, **values)


def _mahimahi(condition: Mahimahi, horizon_s: float) -> Iterator[Change]:
    times_ms = condition.mahimahi.times_ms
    steps = mahimahi.rates(times_ms, round(condition.bin_s * 1000))
    if len(steps) == 1:  # nothing changes ever after
        yield _change(condition, condition.from_s, rate_bps=steps[0][1])
        return
    steps = mahimahi.payable(steps, times_ms[-1] / 1000)
    last_bps: float | None = None
    starts_s = (condition.from_s + i * times_ms[-1] / 1000 for i in count())
    for start_s in takewhile(lambda start_s: start_s < horizon_s, starts_s):
        for at_s, rate_bps in steps:
            if rate_bps != last_bps and _within(condition, start_s + at_s):
                yield _change(condition, start_s + at_s, rate_bps=rate_bps)
                last_bps = rate_bps


def _within(condition: Span, at_s: float) -> bool:
    return condition.until_s is None or round(at_s, DIGITS) < condition.until_s


def _flows(condition: Background, horizon_s: float) -> Iterator[BackgroundFlow]:
    traffic, pattern = condition.background, condition.background.pattern
    spans = [(condition.at_s, horizon_s if condition.for_s is None else condition.at_s + condition.for_s, traffic.flows)]
    if pattern is not None:
        starts_s = [condition.at_s + start_s for start_s in pattern.starts_s()]
        spans = [(start_s, start_s + pattern.each_s, flows) for start_s, flows in zip(starts_s, pattern.flows, strict=True)]
    for start_s, stop_s, flows in spans:
        stop_s = min(stop_s, horizon_s)
        ends = round(start_s, DIGITS), round(stop_s, DIGITS)
        yield BackgroundFlow(*ends, traffic.source, traffic.target, traffic.protocol, flows, traffic.rate_bps, traffic.dscp)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, DIGITS)


def plain(one: Change | BackgroundFlow) -> dict[str, Any]:
    """Return what is told of one of them, as plain data."""
    return {name: value for name, value in asdict(one).items() if value is not None}
