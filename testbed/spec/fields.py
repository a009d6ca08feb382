"""The kinds of field an experiment file has: each parses its unit string once and formats it back in JSON dumps."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from testbed import units

MOST_DILATION = 1000
MIN_MTU, MAX_MTU = 576, 9000

Place = tuple[str | int, ...]  # keys and list indices, outermost first


class Faults(ValueError):
    """Problems found across fields: each with the path, below the model that found it, of the field to blame."""

    def __init__(self, faults: list[tuple[Place, str]]) -> None:
        super().__init__("; ".join(message for _, message in faults))
        self.faults = faults


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a file's value is a plain finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, not {str(value).lower()}")
    return value


def _mtu(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and MIN_MTU <= value <= MAX_MTU):
        return value
    raise ValueError(f"must be auto or a whole number of bytes from {MIN_MTU} to {MAX_MTU}, not {value!r}")


def _dilation(value: object) -> object:
    if value == "auto":
        return value
    if is_number(value) and 1 <= value <= MOST_DILATION:
        return float(value)
    raise ValueError(f"must be auto or a number from 1 to {MOST_DILATION}, not {value!r}")


def _loss(fraction: float) -> float:
    if fraction >= 1:
        raise ValueError(f"must be below 1 (all frames lost); {units.FRACTION_FORMS}")
    return fraction


def _queue(queue: units.Queue) -> units.Queue:
    if not (queue.size_bytes or queue.bdp):
        raise ValueError(f"must be above 0; {units.QUEUE_FORMS}")
    return queue


Rate = Annotated[float, BeforeValidator(units.parse_rate), Field(gt=0), PlainSerializer(units.format_rate, when_used="json")]
Time = Annotated[float, BeforeValidator(units.parse_time), PlainSerializer(units.format_time, when_used="json")]
Seconds = Annotated[float, BeforeValidator(units.parse_seconds), Field(gt=0), PlainSerializer(units.format_time, when_used="json")]
Size = Annotated[int, BeforeValidator(units.parse_size), Field(gt=0), PlainSerializer(units.format_size, when_used="json")]
Loss = Annotated[float, BeforeValidator(units.parse_fraction), AfterValidator(_loss)]
Accuracy = Annotated[float, BeforeValidator(units.parse_fraction), Field(gt=0)]
QueueLimit = Annotated[
    units.Queue,
    BeforeValidator(units.parse_queue),
    AfterValidator(_queue),
    PlainSerializer(units.format_queue, when_used="json"),
]
Dilation = Annotated[Any, AfterValidator(_dilation)]
Mtu = Annotated[Any, AfterValidator(_mtu)]
Whole = Annotated[int, BeforeValidator(_not_bool)]
Count = Annotated[Whole, Field(ge=1)]
Number = Annotated[float, BeforeValidator(_not_bool)]


class Model(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
