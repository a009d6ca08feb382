"""A leaf-spine fabric: every leaf joined to every spine, so that several equal paths exist (ECMP)."""

from __future__ import annotations

from topologies.model import Link, LinkSpec, Network


def leafspine(
    workers: int,
    leaves: int,
    spines: int,
    fabric: LinkSpec,
    access: LinkSpec,
    fabric_back: LinkSpec | None = None,
    access_back: LinkSpec | None = None,
    traffic_hosts: int = 0,
) -> Network:
    """Spread h1..hN evenly over the leaves l1.., and t1... for traffic in turn; spines are p1...; fabric links are the bottlenecks."""
    hosts = tuple(f"h{i + 1}" for i in range(workers))
    others = tuple(f"t{i + 1}" for i in range(traffic_hosts))
    leaf_names = tuple(f"l{i + 1}" for i in range(leaves))
    spine_names = tuple(f"p{i + 1}" for i in range(spines))
    links = [
        Link(f"fabric-{leaf}-{spine}", leaf, spine, fabric, fabric_back or fabric, bottleneck=True)
        for leaf in leaf_names
        for spine in spine_names
    ]
    for i, host in enumerate(hosts):
        links.append(Link(f"access-{host}", host, leaf_names[i * leaves // workers], access, access_back or access))
    for i, host in enumerate(others):
        links.append(Link(f"access-{host}", host, leaf_names[i % leaves], access, access_back or access))
    return Network(hosts, leaf_names + spine_names, tuple(links), traffic_hosts=others)
