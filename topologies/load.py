"""How much traffic a synchronous exchange can put on a network: pure arithmetic on the graph."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

from topologies.model import Direction, Network


@dataclass(frozen=True)
class Flow:
    """Bytes from one host to another."""

    source: str
    target: str
    size_bytes: float


def ring_hops(network: Network) -> list[list[Direction]]:
    """Return the paths of a ring exchange: every worker sends to the next one, the last to the first."""
    hosts = network.hosts
    return [network.path(host, hosts[(i + 1) % len(hosts)]) for i, host in enumerate(hosts)]


def ring_load_bps(network: Network) -> float:
    """Return the most a ring exchange can ask of the switches: its pace times the switch traversals of all its hops.

    The ring is synchronous, so every hop goes at the pace of the most crowded link.
    """
    hops = ring_hops(network)
    crossings = Counter(direction.name for path in hops for direction in path)
    pace_bps = min((d.spec.rate_bps / crossings[d.name] for path in hops for d in path if d.spec.rate_bps is not None), default=math.inf)
    return pace_bps * sum(len(path) - 1 for path in hops)


def phases_of(network: Network, pattern: str, bytes_sent: list[float]) -> list[list[Flow]]:
    """Return who sends how much (L2 bytes) to whom, phase after phase, when each worker sends what is given.

    Around a "ring" all send at once. With a "server", the first worker, all others send to it; then it sends equal shares to them.
    """
    hosts = network.hosts
    if pattern == "ring":
        return [[Flow(host, hosts[(i + 1) % len(hosts)], sent) for i, (host, sent) in enumerate(zip(hosts, bytes_sent, strict=True))]]
    server, *workers = hosts
    pushes = [Flow(worker, server, sent) for worker, sent in zip(workers, bytes_sent[1:], strict=True)]
    return [pushes, [Flow(server, worker, bytes_sent[0] / len(workers)) for worker in workers]]


def transfer_s(network: Network, flows: list[Flow]) -> float:
    """Return how long the most crowded link needs for all flows."""
    load: defaultdict[str, float] = defaultdict(float)
    rates: dict[str, float] = {}
    for flow in flows:
        for direction in network.path(flow.source, flow.target):
            if direction.spec.rate_bps is not None:
                load[direction.name] += flow.size_bytes
                rates[direction.name] = direction.spec.rate_bps
    return max((size_bytes * 8 / rates[name] for name, size_bytes in load.items()), default=0.0)


def longest_rtt_s(network: Network, flows: list[Flow]) -> float:
    """Return the longest round-trip time between workers that talk to each other."""
    return max((network.base_rtt_s(flow.source, flow.target) for flow in flows), default=0.0)
