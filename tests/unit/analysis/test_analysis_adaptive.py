"""Which schemes count as adaptive; what follows from it is in test_analysis_compare and test_analysis_figures_time."""

from __future__ import annotations

from analysis.adaptive import FOLLOWING
from workloads.schemes import Scheme, resolve, schemes


def looks_at_the_network(scheme: Scheme) -> bool:
    must_be_told = scheme.short is not None and scheme.short.required
    return resolve(f"{scheme.name}-1" if must_be_told else scheme.name).build().policy.senses


def test_our_adaptive_schemes_are_those_whose_policy_looks_at_the_network() -> None:
    looking = {name for name, scheme in schemes().items() if looks_at_the_network(scheme)}
    assert looking == {name for name in schemes() if name.startswith(FOLLOWING)}
