"""What a network is: hosts and switches joined by links whose two directions are described apart.

Everything here is plain data. `star`, `dumbbell` and `leafspine` build a `Network`; `testbed.emulation` boots one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations

import networkx as nx

ETHERNET_HEADER_BYTES = 14
MIN_QUEUE_FRAMES = 10  # a queue given in BDPs is never smaller than this many full frames
SMALL_MTU = 1500
LARGE_MTU = 9000
LARGE_MTU_ABOVE_BPS = 50e6


@dataclass(frozen=True)
class LinkSpec:
    """One direction of a link. Rate counts L2 bits without FCS; delay is one way."""

    rate_bps: float | None = None  # None: not shaped (only inside the testbed; experiment files must give a rate)
    delay_s: float = 0.0
    jitter_s: float = 0.0  # half-width of the uniform spread around delay_s
    loss: float = 0.0  # fraction of frames lost, 0 <= loss < 1
    queue_bytes: int | None = None  # a fixed limit; or
    queue_bdp: float | None = 1.0  # a multiple of rate x base RTT of the longest path over the link

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
    """Hosts, switches and links. `hosts` is in rank order: worker i runs on hosts[i]."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]

    @cached_property
    def graph(self) -> nx.Graph:
        """Return the undirected graph; each edge carries its `link`."""
        graph: nx.Graph = nx.Graph()
        graph.add_nodes_from(self.hosts)
        graph.add_nodes_from(self.switches)
        for link in self.links:
            graph.add_edge(link.a, link.b, link=link)
        return graph

    @property
    def has_loops(self) -> bool:
        """Tell whether self-learning switches would make a broadcast storm here."""
        return not nx.is_forest(self.graph)

    def directions(self) -> Iterator[Direction]:
        """Yield both directions of every link, in the order of `links`."""
        for link in self.links:
            yield Direction(link.name, link.a, link.b, link.forward, link.bottleneck)
            yield Direction(link.name, link.b, link.a, link.backward, link.bottleneck)

    def path(self, source: str, target: str) -> list[Direction]:
        """Return the directions a frame crosses from source to target on a shortest path."""
        return self._along(nx.shortest_path(self.graph, source, target))

    def _along(self, nodes: list[str]) -> list[Direction]:
        return [self._by_ends[pair] for pair in pairwise(nodes)]

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
        """Turn every queue given in BDPs into bytes, once, before the run starts."""
        longest: dict[str, float] = {}
        for source, target in permutations(self.hosts, 2):
            rtt_s = self.base_rtt_s(source, target)
            for nodes in nx.all_shortest_paths(self.graph, source, target):
                for direction in self._along(nodes):
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
