"""Where a step's time went, by the definitions of docs/results.md.

    begin ............ last gradient ready ............ backward ends ..... end
      compute, encode  |  encode, decode, exchange (rest)  |  compute (optimiser)

Every instant belongs to exactly one part, so the four sum to the step. Communication and decoding that run beside
backward, before the last gradient is ready, cost no time of their own and are in none of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workloads.clock import Clock

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals into disjoint ascending ones; empty ones vanish."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def clip(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Keep what lies between two instants."""
    return [(max(a, start), min(b, end)) for a, b in intervals if min(b, end) > max(a, start)]


def total(intervals: Iterable[Interval]) -> float:
    """Return the time covered by intervals that may overlap."""
    return sum(b - a for a, b in union(intervals))


@dataclass(frozen=True)
class StepTimes:
    """The four parts of a step."""

    compute_s: float
    encode_s: float
    exchange_s: float
    decode_s: float

    @property
    def step_s(self) -> float:
        """Wall time of the step: exactly the sum of its parts."""
        return self.compute_s + self.encode_s + self.exchange_s + self.decode_s


def split_step(
    begin: float, last_gradient: float, backward_end: float, end: float, encodes: Iterable[Interval], decodes: Iterable[Interval]
) -> StepTimes:
    """Attribute every instant of a step; where encoding and decoding overlap, the instant is encoding's."""
    encodes, decodes = list(encodes), list(decodes)
    encode_before = total(clip(encodes, begin, last_gradient))
    exposed_encodes = clip(encodes, last_gradient, backward_end)
    encode_exposed = total(exposed_encodes)
    busy = total([*exposed_encodes, *clip(decodes, last_gradient, backward_end)])
    return StepTimes(
        compute_s=max(0.0, (last_gradient - begin) - encode_before + (end - backward_end)),
        encode_s=encode_before + encode_exposed,
        exchange_s=max(0.0, (backward_end - last_gradient) - busy),
        decode_s=max(0.0, busy - encode_exposed),
    )


class StepTimer:
    """Mark the instants of a step; `parameters` are watched for the last gradient."""

    def __init__(self, parameters: Iterable[object], clock: Clock) -> None:
        self._clock = clock
        self._begin = self._backward_end = 0.0
        self._last_gradient = 0.0
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[attr-defined]

    def _on_gradient(self, parameter: object) -> None:
        self._last_gradient = self._clock.now()

    def begin(self) -> None:
        """Mark the start of a step."""
        self._begin = self._last_gradient = self._clock.now()

    def backward_done(self) -> None:
        """Mark the end of backward."""
        self._backward_end = self._clock.now()

    def end(self, encodes: Iterable[Interval] = (), decodes: Iterable[Interval] = ()) -> StepTimes:
        """Mark the end of the step and split it."""
        return split_step(self._begin, self._last_gradient, self._backward_end, self._clock.now(), encodes, decodes)

    def overlap_s(self, exchanges: Iterable[Interval]) -> float:
        """Return how long buckets were on their way while gradients were still being computed."""
        return total(clip(exchanges, self._begin, self._last_gradient))
