"""Schemes that follow the network: NetSenseML, alone and assisted, DC2-style, and the budget rule. Top-k, dense where that is cheaper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workloads import styles
from workloads.schemes.registry import Parameter, Scheme

if TYPE_CHECKING:
    from workloads.parts import Parts
    from workloads.policies.netsense import NetSenseConstants
    from workloads.policies.policy import Policy

_FEEDBACK = Parameter("error_feedback", "add what was not sent to the next gradient", flag=True, default=True)
_HALF = Parameter("half_below", "values travel as FP16 while the ratio is below this", least=0.0, most=1.0)
_PRUNE = Parameter("prune", "fraction of the weights masked once, at the start", least=0.0, most=0.99, default=0.0)
_FRACTIONS = ("initial", "decrease", "floor", "ceiling")
_ADDED = ("startup_increase", "increase")
_NETSENSE_HALF_BELOW = 0.1
_NETSENSE_PARAMETERS = (
    Parameter("variant", "whose constants", choices=("paper", "prototype"), default="paper"),
    *(Parameter(name, f"{name} of the ratio", above=0.0, most=1.0) for name in _FRACTIONS),
    *(Parameter(name, f"{name} of the ratio", least=0.0, most=1.0) for name in _ADDED),
    Parameter("guard", "share of the bandwidth-delay product that may be sent", above=0.0, most=10.0),
    Parameter("window_s", "how long the sensed extremes are remembered", above=0.0, most=3600.0),
    Parameter("loss_is_congestion", "take a retransmission for congestion", flag=True, default=False),
    _HALF,
    _FEEDBACK,
    _PRUNE,
)


def _sensed(policy: Policy, params: Mapping[str, Any], half_below: float) -> Parts:
    from workloads.compression.memory import NoMemory, Residual
    from workloads.compression.topk import TopK
    from workloads.exchange.auto import Auto
    from workloads.parts import Parts

    memory = Residual() if params["error_feedback"] else NoMemory()
    return Parts(Auto(TopK(half_below=params.get("half_below", half_below)), memory), policy, pruned=params.get("prune", 0.0))


def _netsense_constants(params: Mapping[str, Any]) -> NetSenseConstants:
    from dataclasses import replace

    from workloads.policies.netsense import PAPER, PROTOTYPE

    constants = PAPER if params["variant"] == "paper" else PROTOTYPE
    given = {name: params[name] for name in (*_FRACTIONS, *_ADDED, "guard", "window_s", "loss_is_congestion") if name in params}
    return replace(constants, **given)


def _netsense(params: Mapping[str, Any]) -> Parts:
    from workloads.policies.netsense import NetSense

    return _sensed(NetSense(_netsense_constants(params)), params, _NETSENSE_HALF_BELOW)


def _netsense_sdn(params: Mapping[str, Any]) -> Parts:
    from workloads.policies.assisted import AssistedConstants, AssistedNetSense

    half_below = params.get("half_below", _NETSENSE_HALF_BELOW)
    constants = AssistedConstants(_netsense_constants(params), max_age_s=params["max_age_s"], half_below=half_below)
    return _sensed(AssistedNetSense(constants), params, half_below)


def _dc2(params: Mapping[str, Any]) -> Parts:
    from workloads.policies.dc2 import Dc2, Dc2Constants

    return _sensed(Dc2(Dc2Constants(law=params["law"], target_s=params.get("target_s"))), params, half_below=0.0)


def _budget(params: Mapping[str, Any]) -> Parts:
    from workloads.policies.budget import Budget, BudgetConstants

    return _sensed(Budget(BudgetConstants(share=params["share"])), params, half_below=0.1)


NETSENSE = Scheme(
    "netsense",
    "NetSenseML",
    styles.VERMILLION,
    "X",
    "NetSenseML: the ratio follows the sensed bandwidth-delay product (constants as recalled; see docs/schemes.md)",
    _netsense,
    _NETSENSE_PARAMETERS,
)
NETSENSE_SDN = Scheme(
    "netsense-sdn",
    "NetSenseML + SDN",
    styles.ORANGE,
    ">",
    "NetSenseML told by the SDN controller what the path offers; without telemetry as netsense (ours)",
    _netsense_sdn,
    (
        *_NETSENSE_PARAMETERS,
        Parameter("max_age_s", "telemetry older than this is not believed", above=0.0, most=3600.0, default=1.0),
    ),
)
DC2 = Scheme(
    "dc2",
    "DC2-style",
    styles.PURPLE,
    "s",
    "DC2-style: the ratio follows the delay of the exchange (the published law is not public; ours)",
    _dc2,
    (
        Parameter("law", "of the control", choices=("proportional", "ladder", "aimd"), default="proportional"),
        Parameter("target_s", "delay aimed at, in seconds; else the compute time", above=0.0, most=3600.0),
        _HALF,
        _FEEDBACK,
    ),
)
BUDGET = Scheme(
    "budget",
    "Budget",
    styles.PURPLE,
    "D",
    "the largest ratio whose exchange takes no longer than the compute (ours)",
    _budget,
    (Parameter("share", "of the compute time to spend", above=0.0, most=100.0, default=1.0), _HALF, _FEEDBACK),
)
