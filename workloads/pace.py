"""How fast a worker computes: slower than its machine where it is a straggler, and where time is dilated.

One factor says it for a step, and there are two ways to keep to it. A replay sleeps along a `Schedule`, whose times it multiplies. Real
training is followed by a `Stretch`: after each piece of computing (forward, each gradient, optimiser) it sleeps factor - 1 times the CPU
time which that piece took. So gradients become ready, and go on their way, as late as on a slower device, and records show it as compute.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.clock import Clock

if TYPE_CHECKING:  # forecasts ask for slowdowns, and need no torch
    from torch import Tensor

MIN_SLEEP_S = 2e-4  # shorter waits are left to the next piece: a sleep overshoots by up to 0.1 ms


@dataclass(frozen=True)
class Slowdown:
    """A reason to be slow in a step: by a factor between two, with a chance."""

    low: float
    high: float
    chance: float = 1.0


class Slowdowns:
    """How many times as long a worker's compute takes, step by step; the same whatever the scheme."""

    def __init__(self, given: Sequence[Slowdown], seed: int, rank: int) -> None:
        self._given, self._seed, self._rank = given, seed, rank

    def of(self, step: int) -> float:
        """Return the factor of a step: what several reasons ask for is multiplied."""
        factor = 1.0
        for number, one in enumerate(self._given):
            draw = random.Random(f"{self._seed}/{self._rank}/{number}/{step}")
            if draw.random() < one.chance:
                factor *= draw.uniform(one.low, one.high)
        return factor


class Schedule:
    """Sleep instead of computing, along a schedule that encoding postpones."""

    def __init__(self, clock: Clock, encoded_s: Callable[[], float] = lambda: 0.0) -> None:
        """`encoded_s` tells how long the thread has spent encoding so far."""
        self._clock, self._encoded_s = clock, encoded_s
        self._origin = 0.0

    def begin(self) -> None:
        """Start the schedule now."""
        self._origin = self._clock.now() - self._encoded_s()

    def wait_until(self, offset_s: float, least_s: float = MIN_SLEEP_S) -> None:
        """Sleep until `offset_s` of computing have passed."""
        wait = self._origin + self._encoded_s() + offset_s - self._clock.now()
        if wait > least_s:
            self._clock.sleep(wait)


class Stretch:
    """Make real computing on one thread last longer, piece by piece."""

    def __init__(self, clock: Clock, encode_cpu_s: Callable[[], float], parameters: Iterable[Tensor]) -> None:
        """Watch the parameters' gradients; `encode_cpu_s` tells the thread's CPU time for encoding so far, which is no computing."""
        self._clock, self._encode_cpu_s = clock, encode_cpu_s
        self._factor, self._mark_s, self._owed_s = 1.0, 0.0, 0.0
        for parameter in parameters:
            parameter.register_hook(self._on_gradient)  # before DDP has the gradient

    def begin(self, slowdown: float) -> None:
        """Begin to compute now, so many times as slowly; what came before was no computing."""
        self._factor = slowdown * self._clock.dilation
        self._mark_s = self._computed_s()

    def catch_up(self) -> None:
        """Sleep what the computing since the last time owes."""
        if self._factor <= 1:
            return
        computed_s = self._computed_s()
        self._owed_s += (self._factor - 1) * (computed_s - self._mark_s)
        self._mark_s = computed_s
        if self._owed_s > MIN_SLEEP_S:
            began = time.perf_counter()
            time.sleep(self._owed_s)
            self._owed_s -= time.perf_counter() - began  # what it overslept the next piece need not

    def _computed_s(self) -> float:
        return time.thread_time() - self._encode_cpu_s()

    def _on_gradient(self, gradient: Tensor) -> None:
        self.catch_up()
