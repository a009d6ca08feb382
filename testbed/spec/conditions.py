"""How a link changes during a run, as an experiment file describes it: steps, ramps, random walks, redraws and traces.

A condition's keys tell what it is. `testbed.spec.condition_list` reads a whole list; `testbed.timeline` says what happens when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import Field, StrictBool, ValidationInfo, model_validator

from testbed.spec.condition_fields import (
    AnyTime,
    Interval,
    LinkName,
    LinkRate,
    Moment,
    OpportunitiesFile,
    StepNumber,
    TableFile,
    fault_of_moment,
    surroundings,
)
from testbed.spec.fields import Faults, Loss, Model, Place, Rate, Time
from testbed.spec.traces import UNLIMITED

QUANTITIES = ("rate_bps", "delay_s", "loss")  # what may go on changing
Q = TypeVar("Q", bound=float)


class OnLink(Model):
    """Something that happens to a link."""

    link: LinkName = Field(description="say which link changes, such as link: bottleneck")
    direction: Literal["both", "forward", "backward"] = "both"  # forward: from a to b, as the link is described

    @property
    def directions(self) -> frozenset[str]:
        """Return the directions it happens to."""
        return frozenset(("forward", "backward") if self.direction == "both" else (self.direction,))


class Step(OnLink):
    """One change, at a time or at a step of the training."""

    at_s: Moment | None = Field(None, alias="at")
    at_step: StepNumber | None = None
    rate_bps: LinkRate | None = Field(None, alias="rate")
    delay_s: Time | None = Field(None, alias="delay")
    jitter_s: Time | None = Field(None, alias="jitter")
    loss: Loss | None = None
    state: Literal["up", "down"] | None = None

    @model_validator(mode="after")
    def _when_and_what(self) -> Step:
        faults: list[tuple[Place, str]] = []
        if (self.at_s is None) == (self.at_step is None):
            faults.append(((), "say when it happens: either at, such as at: 30s, or at_step"))
        if all(value is None for value in (self.rate_bps, self.delay_s, self.jitter_s, self.loss, self.state)):
            faults.append(((), "say what changes: one or more of rate, delay, jitter, loss and state"))
        if self.state is not None and self.direction != "both":
            faults.append((("direction",), "a link goes down and up in both directions"))
        if self.delay_s is not None and self.jitter_s is not None and self.jitter_s > self.delay_s:
            faults.append((("jitter",), "jitter must not exceed the delay it spreads around"))
        if faults:
            raise Faults(faults)
        return self


class Span(OnLink):
    """Changes from one time to another, or to the end of the run; the last of them holds."""

    from_s: Moment = Field(0.0, alias="from")
    until_s: AnyTime | None = Field(None, alias="until")

    @property
    def end_s(self) -> float:
        """Return when it changes nothing any more."""
        return math.inf if self.until_s is None else self.until_s

    def least(self) -> dict[str, float]:
        """Return what it changes, each quantity with the least value it can take."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Span:
        if self.until_s is not None and self.until_s <= self.from_s:
            raise Faults([(("until",), "must be later than from")])
        return self


class Repeated(Span):
    """Changes at regular intervals."""

    every_s: Interval = Field(alias="every", description="say how often it changes, such as every: 500ms")


class Ranges(Model):
    """Two values of one or more quantities."""

    rate_bps: tuple[Rate, Rate] | None = Field(None, alias="rate")
    delay_s: tuple[Time, Time] | None = Field(None, alias="delay")
    loss: tuple[Loss, Loss] | None = None

    def given(self) -> Mapping[str, tuple[float, float]]:
        """Return the quantities that were given."""
        return {name: pair for name, pair in self if pair is not None}

    @model_validator(mode="after")
    def _not_empty(self) -> Ranges:
        if not self.given():
            raise ValueError("needs one or more of rate, delay and loss, such as rate: [10mbit, 40mbit]")
        return self


class Ramp(Repeated):
    """Straight from the first value to the second."""

    ramp: Ranges

    def least(self) -> dict[str, float]:
        """Return the lower end of each quantity."""
        return {name: min(pair) for name, pair in self.ramp.given().items()}

    @model_validator(mode="after")
    def _ends_within_the_run(self, info: ValidationInfo) -> Ramp:
        if self.until_s is None:
            raise Faults([(("until",), "missing; say when the ramp ends, such as until: 30s")])
        if fault := fault_of_moment(self.until_s, surroundings(info), may_be_the_end=True):
            raise Faults([(("until",), fault)])
        return self


class Redraw(Repeated):
    """A new value now and then, every one between the two as likely."""

    redraw: Ranges

    def least(self) -> dict[str, float]:
        """Return the lower end of each quantity."""
        return {name: low for name, (low, _) in self.redraw.given().items()}

    @model_validator(mode="after")
    def _lower_first(self) -> Redraw:
        falling = [Ranges.model_fields[name].alias or name for name, (low, high) in self.redraw.given().items() if low > high]
        if falling:
            raise Faults([(("redraw", name), "must begin with the lower value") for name in falling])
        return self


class Bounds(Model, Generic[Q]):
    """Where a quantity walks, and how far at a time."""

    between: tuple[Q, Q] = Field(description="a walk needs bounds, such as between: [5mbit, 40mbit]")
    step: Q = Field(description="a walk needs the length of its steps, such as step: 5mbit")

    @model_validator(mode="after")
    def _room_for_a_step(self) -> Bounds[Q]:
        low, high = self.between
        if low >= high:
            raise Faults([(("between",), "must begin with the lower value, and the other must be higher")])
        if not 0 < self.step <= high - low:
            raise Faults([(("step",), "must be above 0 and at most the distance between the bounds")])
        return self


class Walks(Model):
    """The quantities that walk."""

    rate_bps: Bounds[Rate] | None = Field(None, alias="rate")
    delay_s: Bounds[Time] | None = Field(None, alias="delay")
    loss: Bounds[Loss] | None = None

    def given(self) -> Mapping[str, Bounds[float]]:
        """Return the quantities that were given."""
        return {name: bounds for name, bounds in self if bounds is not None}

    @model_validator(mode="after")
    def _not_empty(self) -> Walks:
        if not self.given():
            raise ValueError("needs one or more of rate, delay and loss, such as rate: {between: [5mbit, 40mbit], step: 5mbit}")
        return self


class Walk(Repeated):
    """A random walk from the link's own value: a step up or down, as likely, turned back at the bounds."""

    walk: Walks

    def least(self) -> dict[str, float]:
        """Return the lower bound of each quantity."""
        return {name: bounds.between[0] for name, bounds in self.walk.given().items()}


class Trace(Span):
    """What a CSV file says."""

    trace: TableFile
    loop: StrictBool = False

    @property
    def end_s(self) -> float:
        """Return when it changes nothing any more: a trace that does not loop ends with its last row."""
        return super().end_s if self.loop else min(super().end_s, self.from_s + self.trace.rows[-1].t_s)

    def least(self) -> dict[str, float]:
        """Return the least value of each column."""
        columns = {name: [getattr(row, name) for row in self.trace.rows] for name in QUANTITIES}
        return {
            name: min(math.inf if value == UNLIMITED else value for value in values if value is not None)
            for name, values in columns.items()
            if any(value is not None for value in values)
        }

    @model_validator(mode="after")
    def _long_enough_to_loop(self) -> Trace:
        if self.loop and len(self.trace.rows) < 2:
            raise Faults([(("loop",), f"{self.trace.file} has one row only: it says once what to do, and cannot loop")])
        return self


class Mahimahi(Span):
    """What a trace of Mahimahi lets pass; it loops, as Mahimahi does."""

    mahimahi: OpportunitiesFile
    bin_s: Annotated[Interval, Field(le=1)] = Field(0.1, alias="bin")  # as coarse as it may be; divided where the trace needs it

    def least(self) -> dict[str, float]:
        """Return that it changes the rate, which may be 0."""
        return {"rate_bps": 0.0}
