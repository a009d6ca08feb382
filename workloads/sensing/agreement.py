"""How all workers come to decide on the same numbers: each tells all others what it measured, at the end of every step.

The messages are short, go directly from each worker to each other, and travel while the next step is computed: they cost time only
where optimiser and forward pass are shorter than the path's delay.
Every rank combines the same measurements in the same way, so equal policies decide equally; the ratio that a step used is
among them, and a rank that used another one is found out at once.
"""

from __future__ import annotations

import math
import struct
from dataclasses import astuple, dataclass

from workloads.exchange.messages import AGREEMENT, Endpoint, Round, tag
from workloads.exchange.plan import Plan
from workloads.policies.policy import Sample


class Disagreement(RuntimeError):
    """Workers that did not use the same ratio in the same step."""


@dataclass(frozen=True)
class Measurement:
    """What one worker saw in one step."""

    step: int
    ratio: float
    dense_bytes: int
    bytes_sent: int
    exchange_s: float
    compute_s: float
    step_s: float
    retransmits: int  # -1: the kernel does not tell
    rounds: float = 1.0
    available_bps: float = math.inf  # this and what follows: of the worker's own path, meaningless if its age is infinite
    backlog_bytes: float = 0.0
    base_rtt_s: float = 0.0
    telemetry_age_s: float = math.inf  # infinite: nothing is known

    def pack(self) -> bytes:
        """Return it as a message."""
        return _LAYOUT.pack(*astuple(self))

    @classmethod
    def unpack(cls, message: bytes) -> Measurement:
        """Read a message."""
        return cls(*_LAYOUT.unpack(message))


_LAYOUT = struct.Struct("<qdqqdddqddddd")


class Agreement:
    """The round of measurements between two steps."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._round: Round | None = None

    def tell(self, mine: Measurement) -> Plan:
        """Send this worker's measurement of the step just ended; return what the round costs."""
        self._round = Round(self._endpoint, tag(AGREEMENT), _LAYOUT.size)
        self._round.send(mine.pack())
        return self._round.plan()

    def collect(self) -> list[Measurement]:
        """Return all workers' measurements of the last step, by rank; none before the first."""
        if self._round is None:
            return []
        messages, self._round = self._round.wait(), None
        return [Measurement.unpack(message) for message in messages]


def combine(measurements: list[Measurement], now_s: float) -> Sample:
    """Make one sample of all workers' measurements of a step that ended at `now_s`.

    The tightest path counts, with its own queue. One worker without telemetry, or with old one, makes it missing or old for all.
    """
    steps, ratios = {m.step for m in measurements}, {m.ratio for m in measurements}
    if len(steps) > 1 or len(ratios) > 1:
        seen = ", ".join(f"rank {rank}: step {m.step} at {m.ratio:g}" for rank, m in enumerate(measurements))
        raise Disagreement(f"the workers disagree on the step or its ratio ({seen}): do all run the same script?")
    retransmits = [m.retransmits for m in measurements]
    available_bps, backlog_bytes = min((m.available_bps, m.backlog_bytes) for m in measurements)
    age_s = max(m.telemetry_age_s for m in measurements)
    is_told = math.isfinite(age_s) and math.isfinite(available_bps)
    return Sample(
        step=measurements[0].step + 1,
        now_s=now_s,
        ratio=measurements[0].ratio,
        dense_bytes=measurements[0].dense_bytes,
        bytes_sent=max(m.bytes_sent for m in measurements),
        exchange_s=min(m.exchange_s for m in measurements),
        slowest_exchange_s=max(m.exchange_s for m in measurements),
        compute_s=sum(m.compute_s for m in measurements) / len(measurements),
        retransmits=None if -1 in retransmits else sum(retransmits),
        rounds=max(m.rounds for m in measurements),
        available_bps=available_bps if is_told else None,
        backlog_bytes=backlog_bytes if is_told else None,
        base_rtt_s=max(m.base_rtt_s for m in measurements) if is_told else None,
        telemetry_age_s=age_s if is_told else math.inf,
    )
