"""A dumbbell: half of the hosts on either side of one bottleneck link."""

from __future__ import annotations

import math

from topologies.model import Link, LinkSpec, Network


def dumbbell(
    workers: int,
    bottleneck: LinkSpec,
    access: LinkSpec,
    bottleneck_back: LinkSpec | None = None,
    access_back: LinkSpec | None = None,
    traffic_hosts: int = 0,
) -> Network:
    """Join the first half of h1..hN to s1, the rest to s2, and s1 to s2 by the bottleneck; t1, t2... for traffic take turns."""
    hosts = tuple(f"h{i + 1}" for i in range(workers))
    others = tuple(f"t{i + 1}" for i in range(traffic_hosts))
    left = (workers + 1) // 2
    down = access_back or access
    # Wherever the access links are the slower ones, they are bottlenecks too.
    slower = (min(access.rate_bps or math.inf, down.rate_bps or math.inf)) < (bottleneck.rate_bps or math.inf)
    links = [Link("bottleneck", "s1", "s2", bottleneck, bottleneck_back or bottleneck, bottleneck=True)]
    for i, host in enumerate(hosts):
        links.append(Link(f"access-{host}", host, "s1" if i < left else "s2", access, down, bottleneck=slower))
    for i, host in enumerate(others):
        links.append(Link(f"access-{host}", host, "s2" if i % 2 else "s1", access, down))
    return Network(hosts, ("s1", "s2"), tuple(links), traffic_hosts=others)
