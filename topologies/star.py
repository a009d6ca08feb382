"""A star: every host on one switch, every access link shaped alike."""

from __future__ import annotations

from topologies.model import Link, LinkSpec, Network


def star(workers: int, forward: LinkSpec, backward: LinkSpec | None = None, traffic_hosts: int = 0) -> Network:
    """Join h1..hN, and t1... for traffic, to s1; `forward` shapes host to switch, `backward` switch to host."""
    hosts = tuple(f"h{i + 1}" for i in range(workers))
    others = tuple(f"t{i + 1}" for i in range(traffic_hosts))
    down = backward or forward
    links = tuple(Link(f"access-{host}", host, "s1", forward, down, bottleneck=host in hosts) for host in hosts + others)
    return Network(hosts, ("s1",), links, traffic_hosts=others)
