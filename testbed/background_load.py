"""How much background traffic can ask of the switches, in sum over its flows at its busiest moment. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.spec.background import Background
from testbed.spec.condition_list import Condition
from testbed.timeline import BackgroundFlow, timeline
from topologies import Network
from topologies.load import ring_hops


def background_load_bps(conditions: Sequence[Condition], network: Network) -> float:
    """Return the most that the conditions' background traffic can ask, counted in switch traversals."""
    wanted = [condition for condition in conditions if isinstance(condition, Background)]
    flows = timeline(wanted, network, seed=0, horizon_s=math.inf).flows
    shared = {direction.name for path in ring_hops(network) for direction in path}
    loads_bps = [_load_bps(flow, network, shared) for flow in flows]
    moments_s = [flow.start_s for flow in flows]  # the sum only grows when a flow begins
    together = (sum(load for flow, load in zip(flows, loads_bps, strict=True) if flow.start_s <= at < flow.stop_s) for at in moments_s)
    return max(together, default=0.0)


def _load_bps(flow: BackgroundFlow, network: Network, shared: set[str]) -> float:
    """Return what one flow asks of all switches on its path.

    UDP sends at its rate, whatever becomes of it behind its own uplink. TCP goes as fast as its path; where it meets the workers on a
    link, it takes from them what it gets, and the sum is no larger.
    """
    path = network.path(flow.source, flow.target)
    limits_bps = [math.inf if direction.spec.rate_bps is None else direction.spec.rate_bps for direction in path]
    if flow.rate_bps is not None:
        pace_bps = min(flow.flows * flow.rate_bps, limits_bps[0])
    else:
        pace_bps = 0.0 if any(direction.name in shared for direction in path) else min(limits_bps)
    return pace_bps * (len(path) - 1)
