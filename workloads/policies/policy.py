"""The policy contract: a sample of the last step in, a decision for the next one out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

TELEMETRY, SENSING = "telemetry", "sensing"


@dataclass(frozen=True)
class Sample:
    """What all workers saw in the step just ended, combined so that every rank holds the same numbers."""

    step: int  # of the step to decide on; 0 before the first, when all that follows is zero
    now_s: float = 0.0  # seconds of training so far, the same on all ranks: what windows are measured in
    ratio: float = 1.0  # that the step just ended used
    dense_bytes: int = 0  # size of the uncompressed gradient
    bytes_sent: int = 0  # really put on the wire by the worker that sent most, indices and headers included
    exchange_s: float = 0.0  # of the worker that was ready last: the time the network took, without waiting for others
    slowest_exchange_s: float = 0.0  # the longest of all workers
    compute_s: float = 0.0  # forward, backward and optimiser, the mean over workers
    retransmits: int | None = None  # TCP segments sent again by all workers, where the kernel tells
    rounds: float = 1.0  # sequential round trips of the exchange, as its plan counts them
    available_bps: float | None = None  # what the controller says is left for us on the tightest path; None: it says nothing
    backlog_bytes: float | None = None  # waiting in that path's tightest queue
    base_rtt_s: float | None = None  # of the longest path, queues empty
    telemetry_age_s: float = math.inf  # of the oldest of what the controller says, at the end of the step


@dataclass(frozen=True)
class Decision:
    """What to do in the next step, and what a sensing policy believes about the network."""

    ratio: float = 1.0  # fraction of elements to send
    btlbw_bps: float | None = None
    rtprop_s: float | None = None
    bdp_bytes: float | None = None
    congested: bool | None = None
    source: str | None = None  # where an assisted policy has it from, TELEMETRY or SENSING; None: it did not choose


class Policy(ABC):
    """Decide how much to send. Pure arithmetic: the same samples give the same decisions, on every rank and in every backend."""

    senses = True  # False: the samples do not matter, so the workers need not exchange them
    assisted = False  # True: wants the controller's telemetry in its samples, where there is some

    @abstractmethod
    def decide(self, sample: Sample) -> Decision:
        """Return the decision for step `sample.step`; called once a step, in order."""

    def reset(self) -> None:  # noqa: B027 - most policies have nothing to forget
        """Forget what was learnt, as after the warm-up."""
