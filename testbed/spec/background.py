"""Traffic that competes with the workers', as an experiment file describes it: TCP or UDP flows between two hosts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, model_validator

from testbed.spec.condition_fields import AnyTime, HostName, Moment, fault_of_moment, surroundings
from testbed.spec.fields import Count, Faults, Model, Place, Rate, Seconds, Whole

Flows = Annotated[Count, Field(le=128)]  # iperf3's limit


class Pattern(Model):
    """One number of flows after another, with pauses between them."""

    flows: Annotated[tuple[Flows, ...], Field(min_length=1)]
    each_s: Seconds = Field(alias="each", description="say how long each number of flows lasts, such as each: 60s")
    pause_s: AnyTime = Field(0.0, alias="pause")

    def starts_s(self) -> list[float]:
        """Return when each number of flows begins, from the beginning of the pattern."""
        return [i * (self.each_s + self.pause_s) for i in range(len(self.flows))]


class Traffic(Model):
    """Who sends what to whom."""

    source: HostName = Field(alias="from", description="say which host sends, such as from: h1")
    target: HostName = Field(alias="to", description="say which host receives, such as to: h3")
    protocol: Literal["tcp", "udp"] = "tcp"
    flows: Flows = 1
    pattern: Pattern | None = None
    rate_bps: Rate | None = Field(None, alias="rate")  # of each UDP flow; TCP takes what it gets
    dscp: Annotated[Whole, Field(ge=0, le=63)] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Traffic:
        faults: list[tuple[Place, str]] = []
        if self.source == self.target:
            faults.append((("to",), f"{self.target} is the sender; traffic needs two hosts"))
        if self.protocol == "udp" and self.rate_bps is None:
            faults.append((("rate",), "missing; a UDP flow needs a rate, such as rate: 5mbit"))
        if self.protocol == "tcp" and self.rate_bps is not None:
            faults.append((("rate",), "is for protocol: udp; a TCP flow takes what it gets"))
        if self.pattern is not None and "flows" in self.model_fields_set:
            faults.append((("flows",), "the pattern says how many flows there are: leave one of them out"))
        if faults:
            raise Faults(faults)
        return self


class Background(Model):
    """Flows from a time on, for a while or to the end of the run."""

    at_s: Moment = Field(alias="at", description="say when the flows begin, such as at: 20s")
    for_s: Seconds | None = Field(None, alias="for")
    background: Traffic

    @model_validator(mode="after")
    def _pattern_within_the_run(self, info: ValidationInfo) -> Background:
        pattern = self.background.pattern
        faults: list[tuple[Place, str]] = []
        if pattern is not None:
            if self.for_s is not None:
                faults.append((("for",), "the pattern says how long the flows last: leave one of them out"))
            for i, start_s in enumerate(pattern.starts_s()):
                if fault := fault_of_moment(self.at_s + start_s, surroundings(info)):
                    faults.append((("background", "pattern", "flows", i), f"begins too late: {fault}"))
        if faults:
            raise Faults(faults)
        return self
