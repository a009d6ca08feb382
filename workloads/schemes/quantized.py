"""Quantisation at a fixed number of bits, and low-rank factors: the field's other baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads import styles
from workloads.schemes.registry import Parameter, Scheme

if TYPE_CHECKING:
    from workloads.compression.codec import Codec
    from workloads.parts import Parts


def _gathered(codec: Codec, error_feedback: bool = False) -> Parts:
    from workloads.compression.memory import NoMemory, Residual
    from workloads.exchange.allgather import AllGather
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllGather(codec, Residual() if error_feedback else NoMemory()), Static())


def _qsgd(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.qsgd import QSGD

    return _gathered(QSGD(levels=int(params["levels"])))


def _terngrad(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.terngrad import TernGrad

    return _gathered(TernGrad())


def _onebit(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.onebit import OneBit

    return _gathered(OneBit(), error_feedback=True)


def _natural(params: Mapping[str, Any]) -> Parts:
    from workloads.compression.natural import Natural

    return _gathered(Natural())


def _powersgd(params: Mapping[str, Any]) -> Parts:
    from workloads.exchange.powersgd import PowerSgd
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(PowerSgd(int(params["rank"])), Static())


QSGD_SCHEME = Scheme(
    "qsgd",
    "QSGD",
    styles.SKY,
    "P",
    "stochastic levels, unbiased, all-gathered (Alistarh et al. 2017)",
    _qsgd,
    (Parameter("levels", "magnitudes besides zero", above=0, most=127, default=127.0, whole=True),),
)
TERNGRAD = Scheme("terngrad", "TernGrad", styles.SKY, "X", "stochastic -1, 0, 1, a scale a tensor (Wen et al. 2017)", _terngrad)
ONEBIT = Scheme("onebit", "1-bit", styles.SKY, "d", "signs with error feedback, two means a tensor (Seide et al. 2014)", _onebit)
NATURAL = Scheme("natural", "Natural", styles.SKY, "p", "stochastic powers of two, 9 bits (Horvath et al. 2019)", _natural)
POWERSGD = Scheme(
    "powersgd",
    "PowerSGD",
    styles.YELLOW,
    "D",
    "low-rank factors by PyTorch's own hook (Vogels et al. 2019)",
    _powersgd,
    (Parameter("rank", "of the factors", above=0, most=64, required=True, short=True, whole=True),),
    dilates=False,
)
