"""How fast and how near a network ever is while conditions change it: what looks at it must be ready for that. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from testbed.timeline import UNLIMITED, Change, Timeline
from topologies import Link, LinkSpec, Network

End = Literal["forward", "backward"]


def fastest(network: Network, timeline: Timeline) -> Network:
    """Return the network with each direction at the highest rate it is ever given; no limit counts for nothing."""

    def raised(link: Link, end: End) -> LinkSpec:
        spec: LinkSpec = getattr(link, end)
        given = [float(c.rate_bps) for c in _of(timeline, link, end) if c.rate_bps is not None and c.rate_bps != UNLIMITED]
        return spec if spec.rate_bps is None else spec.with_rate(max(spec.rate_bps, *given, 0.0))

    return _mapped(network, raised)


def heaviest(network: Network, timeline: Timeline) -> Network:
    """Return the network as it lets most traffic through: as `fastest`, but with no rate where there is no limit at some time."""

    def lifted(link: Link, end: End) -> LinkSpec:
        spec: LinkSpec = getattr(link, end)
        return replace(spec, rate_bps=None) if any(c.rate_bps == UNLIMITED for c in _of(timeline, link, end)) else spec

    return _mapped(fastest(network, timeline), lifted)


def nearest(network: Network, timeline: Timeline) -> Network:
    """Return the network with each direction at the shortest delay it ever has, whatever else is as it is at the start."""

    def shortened(link: Link, end: End) -> LinkSpec:
        spec: LinkSpec = getattr(link, end)
        delays = [c.delay_s for c in _of(timeline, link, end) if c.delay_s is not None]
        return replace(spec, delay_s=min([spec.delay_s, *delays]))

    return _mapped(network, shortened)


def watched(network: Network, timeline: Timeline) -> Network:
    """Return the network with every link whose rate changes marked as a bottleneck: it is sampled finely, and its fidelity judged."""
    changed = {change.link for change in timeline.changes if change.rate_bps is not None}
    return replace(network, links=tuple(replace(link, bottleneck=link.bottleneck or link.name in changed) for link in network.links))


def _of(timeline: Timeline, link: Link, end: End) -> list[Change]:
    return [change for change in timeline.changes if change.link == link.name and change.direction in (end, "both")]


def _mapped(network: Network, spec_of: Callable[[Link, End], LinkSpec]) -> Network:
    links = (replace(link, forward=spec_of(link, "forward"), backward=spec_of(link, "backward")) for link in network.links)
    return replace(network, links=tuple(links))
