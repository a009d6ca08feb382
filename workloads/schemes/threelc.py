"""3LC (Lim et al. 2019): ternary values, quartic and zero-run encoded, per tensor, with error feedback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads import styles
from workloads.schemes.registry import Parameter, Scheme

if TYPE_CHECKING:
    from workloads.parts import Parts

_BELOW_TWO = 1.999
_SPARSITY = Parameter("s", "sparsity multiplier, from 1 to under 2: more zeros", least=1.0, most=_BELOW_TWO, default=1.0, short=True)
_MOMENTUM = Parameter("momentum", "of the server's SGD; the workers' optimiser must then have none", least=0.0, most=0.999, default=0.0)


def _allgather(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.memory import Residual
    from workloads.compression.threelc import ThreeLC
    from workloads.exchange.allgather import AllGather
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllGather(ThreeLC(params["s"]), Residual()), Static())


def _server(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.memory import Residual
    from workloads.compression.threelc import ThreeLC
    from workloads.exchange.server import ParameterServer
    from workloads.parts import Parts
    from workloads.policies.static import Static

    server = ParameterServer(ThreeLC(params["s"]), Residual(), Residual(), params["momentum"])
    return Parts(server, Static(), has_momentum=params["momentum"] > 0)


THREELC = Scheme("3lc", "3LC", styles.BLUE, "D", "3LC's codec, all-gathered", _allgather, (_SPARSITY,))
THREELC_PS = Scheme(
    "3lc-ps",
    "3LC server",
    styles.BLUE,
    "<",
    "3LC as published: a parameter server (in worker 0), compressed both ways",
    _server,
    (_SPARSITY, _MOMENTUM),
)
