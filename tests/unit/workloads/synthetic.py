"""A network of one number or two: an exchange takes t0 + bytes / B, and the samples a policy would see on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workloads.policies.policy import Decision, Policy, Sample

DENSE_PAIR_BYTES = 4
HALF_PAIR_BYTES = 6

Tell = Callable[[int, float], dict[str, float]]  # (step, bandwidth in it) -> what telemetry says at its end, as fields of a Sample


@dataclass(frozen=True)
class Network:
    """N workers that exchange n gradients each step."""

    parameters: int
    workers: int
    bandwidth_bps: float
    fixed_s: float = 0.0  # t0: what an exchange of nothing takes
    compute_s: float = 0.1
    pair_bytes: int = 8  # FP32 + int32; 6 with FP16 values
    half_below: float = 0.0  # pairs have 6 bytes at ratios below
    rounds: float = 1.0  # of a sparse exchange
    noise: float = 0.0  # the exchange takes up to this fraction more or less
    seed: int = 0
    changes: Mapping[int, float] = field(default_factory=dict)  # step -> bandwidth from then on

    @property
    def dense_bytes(self) -> int:
        """Return what each worker of a ring sends."""
        return round(2 * (self.workers - 1) / self.workers * DENSE_PAIR_BYTES * self.parameters)

    def bytes_at(self, ratio: float) -> int:
        """Return the cheaper of sparse all-gather and dense ring."""
        pair_bytes = HALF_PAIR_BYTES if ratio < self.half_below else self.pair_bytes
        sparse = (self.workers - 1) * max(1, int(ratio * self.parameters)) * pair_bytes
        return min(sparse, self.dense_bytes)

    def rounds_at(self, size: int) -> float:
        """Return the round trips of an exchange of so many bytes: a dense ring takes one a hop."""
        return 2 * (self.workers - 1) if size == self.dense_bytes else self.rounds

    def seconds(self, size: int, bandwidth_bps: float | None = None) -> float:
        """Return how long an exchange takes without noise."""
        return self.fixed_s + 8 * size / (bandwidth_bps or self.bandwidth_bps)

    def ratio_for(self, seconds: float, bandwidth_bps: float | None = None) -> float:
        """Return the ratio whose sparse exchange takes so long."""
        size = (seconds - self.fixed_s) * (bandwidth_bps or self.bandwidth_bps) / 8
        return size / ((self.workers - 1) * self.parameters * self.pair_bytes)


@dataclass(frozen=True)
class Step:
    """A decision and what its exchange measured."""

    decision: Decision
    size: int
    exchange_s: float

    @property
    def ratio(self) -> float:
        """Return the ratio decided on."""
        return self.decision.ratio


def drive(policy: Policy, network: Network, steps: int, tell: Tell = lambda step, bandwidth_bps: {}) -> list[Step]:
    """Let a policy decide for so many steps on the network; the decisions and their outcomes, in order."""
    random_ = random.Random(network.seed)
    bandwidth_bps, now_s = network.bandwidth_bps, 0.0
    sample, trace = Sample(step=0), []
    for step in range(steps):
        bandwidth_bps = network.changes.get(step, bandwidth_bps)
        decision = policy.decide(sample)
        size = network.bytes_at(decision.ratio)
        exchange_s = network.seconds(size, bandwidth_bps) * (1 + random_.uniform(-network.noise, network.noise))
        now_s += network.compute_s + exchange_s
        trace.append(Step(decision, size, exchange_s))
        sample = Sample(
            step=step + 1,
            now_s=now_s,
            ratio=decision.ratio,
            dense_bytes=DENSE_PAIR_BYTES * network.parameters,
            bytes_sent=size,
            exchange_s=exchange_s,
            slowest_exchange_s=exchange_s,
            compute_s=network.compute_s,
            retransmits=0,
            rounds=network.rounds_at(size),
            **tell(step, bandwidth_bps),
        )
    return trace
