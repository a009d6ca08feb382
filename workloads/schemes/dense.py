"""The uncompressed baselines, by all-reduce and by a parameter server, and half precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads import styles
from workloads.schemes.registry import Scheme

if TYPE_CHECKING:
    from workloads.parts import Parts


def _none(params: Mapping[str, Any]) -> Parts:
    from workloads.exchange.allreduce import AllReduce
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllReduce(), Static(), stock=True)


def _server(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.dense import Dense
    from workloads.compression.memory import NoMemory
    from workloads.exchange.server import ParameterServer
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(ParameterServer(Dense(), NoMemory(), NoMemory()), Static())


def _half(dtype: str) -> Parts:
    import torch

    from workloads.exchange.allreduce import AllReduce
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllReduce(getattr(torch, dtype)), Static())


NONE = Scheme("none", "Uncompressed", styles.BLACK, "o", "stock DDP: dense all-reduce with its overlap", _none)
NONE_PS = Scheme("none-ps", "Uncompressed server", styles.BLACK, "8", "dense, by a parameter server (in worker 0)", _server)
FP16 = Scheme("fp16", "FP16", styles.ORANGE, "h", "all-reduce in half precision", lambda params: _half("float16"))
BF16 = Scheme("bf16", "BF16", styles.ORANGE, "H", "all-reduce in bfloat16", lambda params: _half("bfloat16"))
