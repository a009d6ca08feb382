"""The policy of the classical schemes: always the same ratio."""

from __future__ import annotations

from workloads.policies.policy import Decision, Policy, Sample


class Static(Policy):
    """Send a fixed fraction."""

    senses = False

    def __init__(self, ratio: float = 1.0) -> None:
        self._decision = Decision(ratio=ratio)

    def decide(self, sample: Sample) -> Decision:
        """Return the fixed decision."""
        return self._decision
