"""Links and topologies as an experiment file describes them; each builds its `topologies.Network`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from testbed import units
from testbed.spec.classes import ClassModel, QueueRate, faults_of
from testbed.spec.fields import Count, Faults, Loss, Model, Mtu, Place, QueueLimit, Time, Whole
from topologies import LinkSpec, Network, dumbbell, leafspine, star
from topologies.model import ETHERNET_HEADER_BYTES


class Reverse(Model):
    """What differs in a link's opposite direction; the rest is as in the link itself."""

    rate_bps: QueueRate | None = Field(None, alias="rate")
    delay_s: Time | None = Field(None, alias="delay")
    jitter_s: Time | None = Field(None, alias="jitter")
    loss: Loss | None = None
    queue: QueueLimit | None = None


class LinkModel(Model):
    """A link: one direction, and what differs in the other."""

    rate_bps: QueueRate = Field(alias="rate", description="a link needs a rate, such as rate: 40mbit")
    delay_s: Time = Field(0.0, alias="delay")  # one way
    jitter_s: Time = Field(0.0, alias="jitter")  # half-width of the spread around the delay
    loss: Loss = 0.0
    queue: QueueLimit = units.Queue(bdp=1.0)
    classes: tuple[ClassModel, ...] = ()  # queues for kinds of traffic; none: one for all
    reverse: Reverse | None = None

    @property
    def forward(self) -> LinkSpec:
        """Return the direction the link was described in."""
        classes = tuple(one.of(self.rate_bps) for one in self.classes)
        return LinkSpec(self.rate_bps, self.delay_s, self.jitter_s, self.loss, self.queue.size_bytes, self.queue.bdp, classes)

    @property
    def backward(self) -> LinkSpec:
        """Return the opposite direction: the same, but for what `reverse` overrides."""
        changed = {} if self.reverse is None else {k: v for k, v in self.reverse if v is not None}
        return self.model_copy(update=changed).forward

    @model_validator(mode="after")
    def _jitter_within_delay_and_classes_within_rate(self) -> LinkModel:
        faults: list[tuple[Place, str]] = []
        if self.jitter_s > self.delay_s:
            faults.append((("jitter",), "jitter must not exceed the delay it spreads around"))
        elif self.backward.jitter_s > self.backward.delay_s:
            faults.append((("reverse",), "jitter must not exceed the delay it spreads around, in this direction too"))
        rate_bps = min(self.rate_bps, self.backward.rate_bps or self.rate_bps)
        faults += [(("classes", *place), message) for place, message in faults_of(self.classes, rate_bps)]
        if faults:
            raise Faults(faults)
        return self


class _Topology(Model):
    workers: Annotated[Whole, Field(ge=2)]
    traffic_hosts: Annotated[Whole, Field(ge=0)] = 0  # t1, t2...: they run no worker, background traffic may use them
    mtu: Mtu = "auto"

    def network(self) -> Network:
        """Build the graph this topology describes."""
        raise NotImplementedError

    def resolved_mtu(self) -> int:
        """Return the MTU, chosen by the slowest link if it was left to us."""
        return self.network().auto_mtu() if self.mtu == "auto" else int(self.mtu)

    def links(self) -> Iterator[tuple[str, LinkModel]]:
        """Yield the links by their name in the file."""
        for name, value in self:
            if isinstance(value, LinkModel):
                yield name, value

    def resolved(self) -> dict[str, Any]:
        """Return it in SI units, both directions of each link spelt out."""
        links = {name: {"forward": asdict(link.forward), "backward": asdict(link.backward)} for name, link in self.links()}
        return {**self.model_dump(), **links, "mtu": self.resolved_mtu()}

    @model_validator(mode="after")
    def _queues_hold_a_frame_and_classes_name_hosts(self) -> _Topology:
        least = self.resolved_mtu() + ETHERNET_HEADER_BYTES
        faults: list[tuple[Place, str]] = []
        for name, link in self.links():
            given: dict[Place, units.Queue | None] = {
                (name, "queue"): link.queue,
                (name, "reverse", "queue"): link.reverse.queue if link.reverse else None,
            }
            given |= {(name, "classes", i, "queue"): units.Queue(one.queue_bytes) for i, one in enumerate(link.classes) if one.queue_bytes}
            for path, queue in given.items():
                if queue is not None and queue.size_bytes is not None and queue.size_bytes < least:
                    mtu = least - ETHERNET_HEADER_BYTES
                    faults.append((path, f"{units.format_size(queue.size_bytes)} cannot hold one frame ({least} bytes at MTU {mtu})"))
            for i, one in enumerate(link.classes):
                strangers = sorted(set(one.hosts) - set(self.network().all_hosts))
                if strangers:
                    faults.append(((name, "classes", i, "hosts"), f"this network has no host {', '.join(strangers)}"))
        if faults:
            raise Faults(faults)
        return self


class Star(_Topology):
    """Every host on one switch."""

    kind: Literal["star"]
    link: LinkModel

    def network(self) -> Network:
        """Build the star."""
        return star(self.workers, self.link.forward, self.link.backward, self.traffic_hosts)


class Dumbbell(_Topology):
    """Half of the hosts on either side of one bottleneck."""

    kind: Literal["dumbbell"]
    bottleneck: LinkModel
    access: LinkModel

    def network(self) -> Network:
        """Build the dumbbell."""
        return dumbbell(
            self.workers,
            self.bottleneck.forward,
            self.access.forward,
            self.bottleneck.backward,
            self.access.backward,
            self.traffic_hosts,
        )


class LeafSpine(_Topology):
    """Every leaf joined to every spine: several equal paths."""

    kind: Literal["leafspine"]
    leaves: Annotated[Whole, Field(ge=2)]
    spines: Count
    fabric: LinkModel
    access: LinkModel

    def network(self) -> Network:
        """Build the leaf-spine fabric."""
        return leafspine(
            self.workers,
            self.leaves,
            self.spines,
            self.fabric.forward,
            self.access.forward,
            self.fabric.backward,
            self.access.backward,
            self.traffic_hosts,
        )

    @model_validator(mode="after")
    def _no_empty_leaf(self) -> LeafSpine:
        if self.leaves > self.workers:
            raise Faults([(("leaves",), f"{self.leaves} leaves need at least as many workers, not {self.workers}")])
        return self


class Machines(Model):
    """Real machines, with backend: cluster. What joins them is theirs: nothing is shaped."""

    kind: Literal["machines"]
    workers: Annotated[Whole, Field(ge=2)]

    def network(self) -> Network:
        """Return what is known: there are so many hosts."""
        return Network(tuple(f"h{i + 1}" for i in range(self.workers)), (), ())

    def resolved_mtu(self) -> int:
        """Raise: each machine's interface has its own, in the manifest."""
        raise ValueError("the MTU of real machines is not known before they are asked")

    def resolved(self) -> dict[str, Any]:
        """Return it as plain data."""
        return self.model_dump()


def listing() -> list[tuple[str, str]]:
    """List each kind of topology with its fields."""
    rows = []
    for kind in (Star, Dumbbell, LeafSpine, Machines):
        fields = ", ".join(name for name in kind.model_fields if name != "kind")
        rows.append((str(get_args(kind.model_fields["kind"].annotation)[0]), f"{kind.__doc__} Fields: {fields}."))
    return rows
