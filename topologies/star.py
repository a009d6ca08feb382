"""A star: every host on one switch, every access link shaped alike."""

from __future__ import annotations

from topologies.model import Link, LinkSpec, Network


def star(workers: int, forward: LinkSpec, backward: LinkSpec | None = None) -> Network:
    """Join h1..hN to s1; `forward` shapes host to switch, `backward` switch to host."""
    hosts = tuple(f"h{i + 1}" for i in range(workers))
    down = backward or forward
    links = tuple(Link(f"access-{host}", host, "s1", forward, down, bottleneck=True) for host in hosts)
    return Network(hosts, ("s1",), links)
