"""The kinds of field a condition has: links, hosts, times and traces, each checked against what surrounds it in the experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, SerializationInfo, ValidationInfo

from testbed import units
from testbed.spec import traces
from testbed.spec.errors import suggestion
from testbed.spec.fields import Whole
from testbed.spec.traces import SHORTEST_S, UNLIMITED, RateValue


@dataclass(frozen=True)
class Surroundings:
    """What a condition is checked against; None: it has no end, or is wrong itself."""

    folder: Path = Path()  # traces are named relative to it
    links: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    end_s: float | None = None  # of the budget
    end_step: int | None = None


def surroundings(info: ValidationInfo) -> Surroundings:
    """Return what the validation was given as its context."""
    return (info.context or {}).get("surroundings") or Surroundings()


def fault_of_moment(at_s: float, around: Surroundings, may_be_the_end: bool = False) -> str | None:
    """Tell that a time is after the end of the run."""
    if around.end_s is None or at_s < around.end_s or (may_be_the_end and at_s == around.end_s):
        return None
    return f"{units.format_time(at_s)} is after the end of the run, whose budget is {units.format_time(around.end_s)}"


def _link(name: str, info: ValidationInfo) -> str:
    links = surroundings(info).links
    if links is not None and name not in links:
        raise ValueError(f"this network has no link '{name}'; {suggestion(name, list(links))}")
    return name


def _host(name: str, info: ValidationInfo) -> str:
    hosts = surroundings(info).hosts
    if hosts is not None and name not in hosts:
        raise ValueError(f"this network has no host '{name}'; {suggestion(name, list(hosts))}")
    return name


def _moment(at_s: float, info: ValidationInfo) -> float:
    if fault := fault_of_moment(at_s, surroundings(info)):
        raise ValueError(fault)
    return at_s


def _step_number(step: int, info: ValidationInfo) -> int:
    end_step = surroundings(info).end_step
    if end_step is not None and step >= end_step:
        raise ValueError(f"step {step} is after the end of the run, whose budget is {end_step} steps, counted from 0")
    return step


def _rate(value: object) -> RateValue:
    if value == UNLIMITED:
        return UNLIMITED
    rate_bps = units.parse_rate(value)
    if rate_bps <= 0:
        raise ValueError("must be above 0; to cut the link off, write state: down")
    return rate_bps


def _written_rate(rate: RateValue) -> str:
    return UNLIMITED if rate == UNLIMITED else units.format_rate(float(rate))


def _not_too_short(time_s: float) -> float:
    if time_s < SHORTEST_S:
        raise ValueError(f"must be at least {units.format_time(SHORTEST_S)}: a change takes about as long")
    return time_s


def _table(file: object, info: ValidationInfo) -> traces.Table:
    return traces.read_table(_path(file), surroundings(info).folder)


def _opportunities(file: object, info: ValidationInfo) -> traces.Opportunities:
    return traces.read_opportunities(_path(file), surroundings(info).folder)


def _path(file: object) -> str:
    if not isinstance(file, str) or not file:
        raise ValueError(f"must be the path of a file, from the experiment file's folder, not {file!r}")
    return file


def _written_trace(trace: traces.Table | traces.Opportunities, info: SerializationInfo) -> object:
    return trace.file if info.mode == "json" else {"file": trace.file, "sha256": trace.sha256}


LinkName = Annotated[str, AfterValidator(_link)]
HostName = Annotated[str, AfterValidator(_host)]
AnyTime = Annotated[float, BeforeValidator(units.parse_seconds), PlainSerializer(units.format_time, when_used="json")]
Moment = Annotated[AnyTime, AfterValidator(_moment)]
Interval = Annotated[AnyTime, AfterValidator(_not_too_short)]
StepNumber = Annotated[Whole, Field(ge=0), AfterValidator(_step_number)]
LinkRate = Annotated[RateValue, PlainValidator(_rate), PlainSerializer(_written_rate, when_used="json")]
TableFile = Annotated[traces.Table, PlainValidator(_table), PlainSerializer(_written_trace)]
OpportunitiesFile = Annotated[traces.Opportunities, PlainValidator(_opportunities), PlainSerializer(_written_trace)]
