"""What a scheme moved and when: of one step, and in total."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from workloads.exchange.plan import NOTHING, Plan
from workloads.policies.policy import Decision, Sample
from workloads.sensing.tcpinfo import Connections
from workloads.timing import Interval


@dataclass
class StepTraffic:
    """What one step moved and when."""

    cost: Plan = NOTHING
    dense_bytes: int = 0
    elements: int = 0
    elements_sent: float = 0.0
    encodes: list[Interval] = field(default_factory=list)
    exchanges: list[Interval] = field(default_factory=list)
    decodes: list[Interval] = field(default_factory=list)
    sample: Sample = field(default_factory=lambda: Sample(step=0))  # what was decided on
    decision: Decision = field(default_factory=Decision)
    connections: Connections | None = None  # what the kernel says of our TCP connections at the end of the step
    under_way: int = 0  # buckets on their way
    last_gradient: float = 0.0  # when backward handed out the last bucket; 0 before that
    agreeing_s: float = 0.0  # how long the first bucket waited for the other workers' measurements
    over: threading.Event = field(default_factory=threading.Event)  # all buckets are home and the others were told, or it failed

    @property
    def ratio(self) -> float:
        """Fraction of gradient elements sent."""
        return self.elements_sent / self.elements if self.elements else 1.0

    def add(self, cost: Plan, elements: int, dense_bytes: int, ratio: float) -> None:
        """Count one bucket."""
        self.cost += cost
        self.dense_bytes += dense_bytes
        self.elements += elements
        self.elements_sent += ratio * elements


@dataclass
class Stats:
    """Totals since attaching."""

    scheme: str
    steps: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    messages: int = 0
    dense_bytes: int = 0
    encode_s: float = 0.0
    exchange_s: float = 0.0  # time during which at least one bucket was on its way, hidden behind backward or not
    decode_s: float = 0.0
    ratio: float = 1.0  # of the last step
