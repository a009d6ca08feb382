"""A link's classes of traffic as an experiment file describes them: queues of their own, with a share of the rate each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from testbed import units
from testbed.spec.fields import Model, Place, Rate, Size, Whole
from topologies import QueueClass

LEAST_RATE_BPS = 12_000.0  # Open vSwitch promises a queue no less, and tc refuses what is under a byte a second


def _least(rate_bps: float) -> float:
    if 0 < rate_bps < LEAST_RATE_BPS:
        raise ValueError(f"must be at least {units.format_rate(LEAST_RATE_BPS)}: no queue can be held to less")
    return rate_bps


QueueRate = Annotated[Rate, AfterValidator(_least)]


class ClassModel(Model):
    """One class: the rate it is sure of, the most it may take, and which packets belong to it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    min_bps: QueueRate = Field(alias="min", description="a class needs the rate it is sure of, such as min: 8mbit")
    max_bps: Rate | None = Field(None, alias="max")  # else all of the link
    queue_bytes: Size | None = Field(None, alias="queue")  # else the link's limit
    dscp: Annotated[Whole, Field(ge=0, le=63)] | None = None
    port: Annotated[Whole, Field(ge=1, le=65535)] | None = None
    hosts: tuple[str, ...] = ()

    def of(self, rate_bps: float) -> QueueClass:
        """Return the class on a direction of this rate."""
        top_bps = rate_bps if self.max_bps is None else self.max_bps
        return QueueClass(self.name, self.min_bps, top_bps, self.queue_bytes, self.dscp, self.port, self.hosts)

    @property
    def claims(self) -> bool:
        """Tell whether it says which packets are its own."""
        return self.dscp is not None or self.port is not None or bool(self.hosts)

    def shared_with(self, other: ClassModel) -> Iterator[tuple[str, str]]:
        """Yield what both classes claim: the key, and what it says in words."""
        if self.dscp is not None and self.dscp == other.dscp:
            yield "dscp", f"dscp {self.dscp}"
        if self.port is not None and self.port == other.port:
            yield "port", f"port {self.port}"
        for host in sorted(set(self.hosts) & set(other.hosts)):
            yield "hosts", f"host {host}"


def faults_of(classes: Sequence[ClassModel], rate_bps: float) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with the classes of a link of this rate."""
    names = [one.name for one in classes]
    if len(classes) == 1:
        yield (), "one class is no choice: leave `classes` out, or give two or more"
    for i, one in enumerate(classes):
        if one.name in names[:i]:
            yield (i, "name"), f"class '{one.name}' is there twice"
        if i == 0 and one.claims:
            yield (i,), "the first class takes what no other claims: give it no dscp, port or hosts"
        if i > 0 and not one.claims:
            yield (i,), "say what belongs to this class by dscp, port or hosts"
        for earlier in classes[:i]:
            for key, what in one.shared_with(earlier):
                yield (i, key), f"{what} belongs to class '{earlier.name}' already"
        top_bps = rate_bps if one.max_bps is None else one.max_bps
        if not one.min_bps <= top_bps <= rate_bps:
            yield (i,), f"needs min <= max <= the link's rate of {units.format_rate(rate_bps)}, in both directions"
    if (total_bps := sum(one.min_bps for one in classes)) > rate_bps:
        yield (), f"the classes are promised {units.format_rate(total_bps)}, and the link has {units.format_rate(rate_bps)}"
