"""Measure what deciding and sensing cost a step: python -m tests.bench_sensing prints the section of docs/benchmarks.md."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable

from tests.unit.workloads.synthetic import Network, drive
from workloads.policies.budget import Budget
from workloads.policies.dc2 import Dc2, Dc2Constants
from workloads.policies.netsense import PAPER, PROTOTYPE, NetSense
from workloads.policies.policy import Decision, Policy, Sample
from workloads.sensing.tcpinfo import TcpSensor

STEP_S = 0.05
BAR = 0.01  # of a step
STEPS = 300
PAIRS = 5  # of connected sockets: ten in all
POLICIES: list[tuple[str, Callable[[], Policy]]] = [
    ("netsense, paper", lambda: NetSense(PAPER)),
    ("netsense, prototype", lambda: NetSense(PROTOTYPE)),
    ("dc2, proportional", lambda: Dc2(Dc2Constants("proportional"))),
    ("dc2, ladder", lambda: Dc2(Dc2Constants("ladder"))),
    ("dc2, aimd", lambda: Dc2(Dc2Constants("aimd"))),
    ("budget", Budget),
]


class Timed(Policy):
    """Another policy, timed after a sweep of the caches, as a training step leaves them."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, list[float]()

    def decide(self, sample: Sample) -> Decision:
        """Decide and note how long it took."""
        sweep()
        start = time.perf_counter()
        decision = self.policy.decide(sample)
        self.seconds.append(time.perf_counter() - start)
        return decision


def sweep(field: bytearray = bytearray(16 << 20)) -> None:  # noqa: B008 - only read
    """Push everything else out of the caches."""
    bytes(field)


def read_s() -> tuple[float, float]:
    """Return the median and the 95th percentile of reading ten sockets that all sent something."""
    pairs = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(PAIRS):
            client = socket.create_connection(server.getsockname())
            pairs += [(client, server.accept()[0])]
    ends = [*pairs, *((b, a) for a, b in pairs)]
    sensor, seconds = TcpSensor(), []
    for _ in range(STEPS):
        for sender, receiver in ends:
            sender.sendall(b"gradient")
            receiver.recv(8)
        sweep()
        start = time.perf_counter()
        seen = sensor.read()
        seconds.append(time.perf_counter() - start)
        if seen is None or seen.sockets != 2 * PAIRS:
            raise RuntimeError(f"the kernel tells of {seen} instead of {2 * PAIRS} sockets: run this on Linux with /proc mounted")
    for pair in pairs:
        for end in pair:
            end.close()
    return statistics.median(seconds), statistics.quantiles(seconds, n=20)[-1]


def decide_s(make: Callable[[], Policy]) -> float:
    """Return the median time of a decision on a network that changes."""
    network = Network(270_000, 4, 10e6, fixed_s=0.03, compute_s=STEP_S, noise=0.2, changes={100: 2e6, 200: 40e6})
    timed = Timed(make())
    drive(timed, network, STEPS)
    return statistics.median(timed.seconds)


def section() -> str:
    """Measure and return the section in Markdown."""
    sensing_s, late_s = read_s()
    descriptors, rows, met = len(os.listdir("/proc/self/fd")), [], True
    for name, make in POLICIES:
        deciding_s = decide_s(make)
        share = (deciding_s + sensing_s) / STEP_S
        met = met and share < BAR
        verdict = "met" if share < BAR else "missed"
        rows.append(f"| {name} | {deciding_s * 1e6:.0f} | {sensing_s * 1e6:.0f} | {share:.2%} | {verdict} |")
    return f"""## What do deciding and sensing cost a step?
Medians of {STEPS} steps, after a sweep of the caches: the policy's decision, and the kernel's view of {2 * PAIRS} busy TCP sockets
(95th percentile {late_s * 1e6:.0f} us; {descriptors} other descriptors open).
The bar is {BAR:.0%} of a step of {STEP_S * 1e3:.0f} ms: {"met" if met else "missed"}.

| policy | decide (us) | read sockets (us) | share of the step | bar |
|---|---|---|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    print(section())
