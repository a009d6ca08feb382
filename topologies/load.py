"""How much traffic a synchronous exchange can put on a network: pure arithmetic on the graph."""

from __future__ import annotations

import math
from collections import Counter

from topologies.model import Direction, Network


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


def ring_transfer_s(network: Network, bytes_sent: float) -> float:
    """Return how long the most crowded link needs when every worker sends `bytes_sent` (L2 bytes) to the next."""
    hops = ring_hops(network)
    crossings = Counter(direction.name for path in hops for direction in path)
    return max(
        (bytes_sent * crossings[d.name] * 8 / d.spec.rate_bps for path in hops for d in path if d.spec.rate_bps is not None), default=0.0
    )


def ring_rtt_s(network: Network) -> float:
    """Return the longest round-trip time between neighbours of the ring."""
    hosts = network.hosts
    return max(network.base_rtt_s(host, hosts[(i + 1) % len(hosts)]) for i, host in enumerate(hosts))
