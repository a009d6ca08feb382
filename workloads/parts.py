"""What a scheme is made of once built."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.exchange.exchange import Exchange
from workloads.policies.policy import Policy


@dataclass(frozen=True)
class Parts:
    """An exchange (with its codec and memory) and the policy that tells it how much to send."""

    exchange: Exchange
    policy: Policy
    stock: bool = False  # leave DDP alone: no hook, its own all-reduce and overlap; the exchange serves after `detach` only
    has_momentum: bool = False  # of its own: the optimiser must have none, or it would be applied twice
    pruned: float = 0.0  # fraction of the weights that are masked once, before the first step
