"""Sparsification at a fixed ratio: top-k and random-k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads import styles
from workloads.schemes.registry import Parameter, Scheme

if TYPE_CHECKING:
    from workloads.compression.memory import Memory
    from workloads.parts import Parts

_RATIO = Parameter("ratio", "fraction of gradient elements sent", above=0.0, most=1.0, required=True, short=True)
_MEMORY = Parameter("memory", "what becomes of the rest", choices=("residual", "none", "momentum"), default="residual")


def _memory(name: str) -> Memory:
    from workloads.compression.memory import NoMemory, Residual
    from workloads.compression.momentum import MomentumCorrection

    return {"residual": Residual, "none": NoMemory, "momentum": MomentumCorrection}[name]()


def _topk(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.sampled import SampledTopK
    from workloads.compression.topk import TopK
    from workloads.exchange.allgather import AllGather
    from workloads.parts import Parts
    from workloads.policies.static import Static

    codec = TopK() if params["selection"] == "exact" else SampledTopK()
    return Parts(AllGather(codec, _memory(params["memory"])), Static(params["ratio"]), has_momentum=params["memory"] == "momentum")


def _randomk(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.randomk import RandomK
    from workloads.exchange.allgather import AllGather
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllGather(RandomK(), _memory(params["memory"])), Static(params["ratio"]), has_momentum=params["memory"] == "momentum")


TOPK = Scheme(
    "topk",
    "Top-k",
    styles.GREEN,
    "s",
    "the largest gradients with error feedback, all-gathered",
    _topk,
    (_RATIO, Parameter("selection", "how the largest are found", choices=("exact", "sampled"), default="exact"), _MEMORY),
)
RANDOMK = Scheme(
    "randomk", "Random-k", styles.YELLOW, "v", "random gradients with error feedback, all-gathered", _randomk, (_RATIO, _MEMORY)
)
