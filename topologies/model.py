"""What a network is: hosts and switches joined by links whose two directions are described apart.

Everything here is plain data. `star`, `dumbbell` and `leafspine` build a `Network`; `testbed.emulation` boots one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import networkx as nx

ETHERNET_HEADER_BYTES = 14
MIN_QUEUE_FRAMES = 10  # a queue given in BDPs is never smaller than this many full frames
SMALL_MTU = 1500
LARGE_MTU = 9000
LARGE_MTU_ABOVE_BPS = 50e6


@dataclass(frozen=True)
class QueueClass:
    """One of several queues of a direction: the rate it is sure of, the rate it may take while others leave it, and what goes into it."""

    name: str
    min_bps: float
    max_bps: float
    queue_bytes: int | None = None  # a limit of its own, else the direction's
    dscp: int | None = None  # packets with this mark; or
    port: int | None = None  # to or from this TCP or UDP port; or
    hosts: tuple[str, ...] = ()  # to or from these hosts. The first class has none of these: it takes what no other claims


@dataclass(frozen=True)
class LinkSpec:
    """One direction of a link. Rate counts L2 bits without FCS; delay is one way."""

    rate_bps: float | None = None  # None: not shaped (only inside the testbed; experiment files must give a rate)
    delay_s: float = 0.0
    jitter_s: float = 0.0  # half-width of the uniform spread around delay_s
    loss: float = 0.0  # fraction of frames lost, 0 <= loss < 1
    queue_bytes: int | None = None  # a fixed limit; or
    queue_bdp: float | None = 1.0  # a multiple of rate x base RTT of the longest path over the link
    classes: tuple[QueueClass, ...] = ()  # none: one queue for everything

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> LinkSpec:
        """Read back what `dataclasses.asdict` made of a LinkSpec."""
        classes = tuple(QueueClass(**{**one, "hosts": tuple(one["hosts"])}) for one in raw["classes"])
        return cls(**{**raw, "classes": classes})

    def queues(self) -> tuple[QueueClass, ...]:
        """Return the queues of the direction in their order: its classes, or one without a name; none if it is not shaped."""
        if self.rate_bps is None:
            return ()
        classes = self.classes or (QueueClass("", self.rate_bps, self.rate_bps),)
        return tuple(one if one.queue_bytes is not None else replace(one, queue_bytes=self.queue_bytes) for one in classes)

    def queue_of(self, source: str, target: str) -> int:
        """Return the number of the queue that takes what one host sends to another, unmarked and on a port that no class claims."""
        return next((n for n, one in enumerate(self.classes) if {source, target} & set(one.hosts)), 0)

    def with_rate(self, rate_bps: float) -> LinkSpec:
        """Return the same direction at another rate, its classes in proportion."""
        factor = rate_bps / self.rate_bps if self.rate_bps else 1.0
        classes = tuple(replace(one, min_bps=one.min_bps * factor, max_bps=one.max_bps * factor) for one in self.classes)
        return replace(self, rate_bps=rate_bps, classes=classes)

    def dilated(self, factor: float) -> LinkSpec:
        """Return the same direction where everything takes `factor` times as long; what counts bytes stays."""
        slower = self if self.rate_bps is None else self.with_rate(self.rate_bps / factor)
        return replace(slower, delay_s=self.delay_s * factor, jitter_s=self.jitter_s * factor)

    @property
    def is_delayed(self) -> bool:
        """Tell whether the direction needs a delay element (netem or the delay line)."""
        return self.delay_s > 0 or self.jitter_s > 0 or self.loss > 0


@dataclass(frozen=True)
class Link:
    """A cable between nodes a and b: `forward` shapes a to b, `backward` shapes b to a."""

    name: str
    a: str
    b: str
    forward: LinkSpec
    backward: LinkSpec
    bottleneck: bool = False  # sampled finely: fidelity is judged on these

    @property
    def is_delayed(self) -> bool:
        """Tell whether either direction needs a delay element."""
        return self.forward.is_delayed or self.backward.is_delayed


@dataclass(frozen=True)
class Direction:
    """One direction of a link, from one node to the next: the thing that has a rate and a queue."""

    link: str
    source: str
    target: str
    spec: LinkSpec
    bottleneck: bool

    @property
    def name(self) -> str:
        """Name the direction as records and figures do, e.g. `bottleneck:s1->s2`."""
        return f"{self.link}:{self.source}->{self.target}"


@dataclass(frozen=True)
class Network:
    """Hosts, switches and links. `hosts` are the workers' alone, in rank order: worker i runs on hosts[i]."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    routes: tuple[tuple[str, ...], ...] = ()  # node paths, at most one an ordered pair; a pair without one takes a shortest path
    traffic_hosts: tuple[str, ...] = ()  # they run no worker: background traffic may begin and end on them

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Network:
        """Read back what `dataclasses.asdict` made of a Network."""
        links = tuple(
            Link(**{**link, "forward": LinkSpec.from_json(link["forward"]), "backward": LinkSpec.from_json(link["backward"])})
            for link in raw["links"]
        )
        routes = tuple(tuple(route) for route in raw["routes"])
        return cls(tuple(raw["hosts"]), tuple(raw["switches"]), links, routes, tuple(raw.get("traffic_hosts", ())))

    @property
    def all_hosts(self) -> tuple[str, ...]:
        """Return everything that has an address: the workers' hosts, then those for traffic alone."""
        return self.hosts + self.traffic_hosts

    def with_routes(self, paths: Iterable[Sequence[str]]) -> Network:
        """Return a copy whose frames take these node paths, instead of any it was given before; ValueError if one leaves the links."""
        routes = tuple(tuple(path) for path in paths)
        for route in routes:
            for pair in pairwise(route):
                if pair not in self._by_ends:
                    raise ValueError(f"the route {' '.join(route)} goes from {pair[0]} to {pair[1]}, but no link joins them")
        return replace(self, routes=routes)

    def dilated(self, factor: float) -> Network:
        """Return the same network where everything takes `factor` times as long (fix its queues in bytes before)."""
        links = (replace(link, forward=link.forward.dilated(factor), backward=link.backward.dilated(factor)) for link in self.links)
        return replace(self, links=tuple(links))

    @cached_property
    def graph(self) -> nx.Graph:
        """Return the undirected graph; each edge carries its `link`."""
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from(self.all_hosts)
        graph.add_nodes_from(self.switches)
        for link in self.links:
            graph.add_edge(link.a, link.b, link=link)
        return graph

    def directions(self) -> Iterator[Direction]:
        """Yield both directions of every link, in the order of `links`."""
        for link in self.links:
            yield Direction(link.name, link.a, link.b, link.forward, link.bottleneck)
            yield Direction(link.name, link.b, link.a, link.backward, link.bottleneck)

    def path(self, source: str, target: str) -> list[Direction]:
        """Return the directions a frame crosses from source to target: along the pair's route, or on a shortest path if it has none."""
        return self._along(self.routed.get((source, target)) or nx.shortest_path(self.graph, source, target))

    def _along(self, nodes: Sequence[str]) -> list[Direction]:
        return [self._by_ends[pair] for pair in pairwise(nodes)]

    @cached_property
    def routed(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the routes by their ordered pair of hosts."""
        return {(route[0], route[-1]): route for route in self.routes}

    @cached_property
    def _by_ends(self) -> dict[tuple[str, str], Direction]:
        return {(d.source, d.target): d for d in self.directions()}

    def base_rtt_s(self, source: str, target: str) -> float:
        """Return the configured round-trip time between two hosts, queues empty."""
        both = self.path(source, target) + self.path(target, source)
        return sum(direction.spec.delay_s for direction in both)

    def auto_mtu(self) -> int:
        """Choose the MTU by the slowest shaped link: large frames above 50 Mbit/s."""
        rates = [d.spec.rate_bps for d in self.directions() if d.spec.rate_bps is not None]
        return LARGE_MTU if rates and min(rates) > LARGE_MTU_ABOVE_BPS else SMALL_MTU

    def with_queues_fixed(self, mtu: int) -> Network:
        """Turn every queue given in BDPs into bytes, once, before the run starts.

        Every shortest path counts beside the routes, so that queues are the same for every choice among equal paths.
        """
        longest: dict[str, float] = {}
        for source, target in combinations(self.all_hosts, 2):
            round_trips = [self._along(nodes) + self._along(nodes[::-1]) for nodes in nx.all_shortest_paths(self.graph, source, target)]
            if self.routed.keys() & {(source, target), (target, source)}:
                round_trips.append(self.path(source, target) + self.path(target, source))
            for crossed in round_trips:
                rtt_s = sum(direction.spec.delay_s for direction in crossed)
                for direction in crossed:
                    longest[direction.name] = max(longest.get(direction.name, 0.0), rtt_s)

        def fixed(spec: LinkSpec, name: str) -> LinkSpec:
            if spec.rate_bps is None or spec.queue_bytes is not None:
                return spec
            bdp_bytes = spec.rate_bps * longest.get(name, 0.0) / 8
            least = MIN_QUEUE_FRAMES * (mtu + ETHERNET_HEADER_BYTES)
            return replace(
                spec, queue_bytes=max(least, round((1.0 if spec.queue_bdp is None else spec.queue_bdp) * bdp_bytes)), queue_bdp=None
            )

        links = tuple(
            replace(
                link,
                forward=fixed(link.forward, f"{link.name}:{link.a}->{link.b}"),
                backward=fixed(link.backward, f"{link.name}:{link.b}->{link.a}"),
            )
            for link in self.links
        )
        return replace(self, links=links)
