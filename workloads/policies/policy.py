"""The policy contract: a sample of the last step in, a decision for the next one out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """What one worker saw in its last step; zeros before the first."""

    step: int  # of the step to decide on
    dense_bytes: int = 0  # size of the uncompressed gradient
    bytes_sent: int = 0
    bytes_received: int = 0
    exchange_s: float = 0.0  # time during which at least one bucket was on its way
    step_s: float = 0.0  # from the first bucket of the last step to the first bucket of this one


@dataclass(frozen=True)
class Decision:
    """What to do in the next step, and what a sensing policy believes about the network."""

    ratio: float = 1.0  # fraction of elements to send
    btlbw_bps: float | None = None
    rtprop_s: float | None = None
    bdp_bytes: float | None = None
    congested: bool | None = None


class Policy(ABC):
    """Decide how much to send."""

    @abstractmethod
    def decide(self, sample: Sample) -> Decision:
        """Return the decision for step `sample.step`; called once a step, in order."""

    def reset(self) -> None:  # noqa: B027 - most policies have nothing to forget
        """Forget what was learnt, as after the warm-up."""
