"""Workers that are slower than the others, as an experiment file describes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from testbed import units
from testbed.spec.fields import Faults, Model, Number, Place, is_number

ALL = "all"
WORKER_FORMS = "give a worker's number, from 0 on, or all"
SLOWDOWN_FORMS = "give a number of at least 1, or two of them to draw between in every step, such as [1, 3]"


def _worker(value: object) -> object:
    if value == ALL or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{value!r} is no worker; {WORKER_FORMS}")


def _slowdown(value: object) -> object:
    ends = [value, value] if is_number(value) else value
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(is_number(end) and end >= 1 for end in ends):
        raise ValueError(f"{value!r} is no slowdown; {SLOWDOWN_FORMS}")
    if ends[0] > ends[1]:
        raise ValueError(f"must go from the smaller to the larger: [{ends[1]:g}, {ends[0]:g}]")
    return tuple(ends)


Chance = Annotated[float, BeforeValidator(units.parse_fraction), Field(gt=0)]
Slowdown = Annotated[tuple[float, float], BeforeValidator(_slowdown)]


class Straggler(Model):
    """One worker, or all of them each on its own: computes more slowly, or has less of a processor, or both."""

    worker: Annotated[Any, BeforeValidator(_worker)] = Field(description=f"say who is slow: {WORKER_FORMS}")
    slowdown: Slowdown | None = None  # how many times as long its compute takes
    chance: Chance = 1.0  # of being slow in a step
    cpus: Annotated[Number, Field(gt=0)] | None = None  # processors that it may use

    def is_about(self, rank: int) -> bool:
        """Tell whether this is said of a worker."""
        return bool(self.worker == ALL or self.worker == rank)

    @model_validator(mode="after")
    def _says_something(self) -> Straggler:
        faults: list[tuple[Place, str]] = []
        if self.slowdown is None and self.cpus is None:
            faults.append(((), "say how it is slow: slowdown: 2, slowdown: [1, 3], or cpus: 0.5"))
        if self.slowdown is None and "chance" in self.model_fields_set:
            faults.append((("chance",), "is the chance of a slowdown, and none is given"))
        if faults:
            raise Faults(faults)
        return self
