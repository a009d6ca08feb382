"""What the runner asks of a sandbox: one run, as plain data that crosses a pipe.

A plan is first in the experiment's time, then `dilated` into the machine's: the network is slower. The workers have a clock that is slower
by as much (workloads/clock.py), so all that is said of their workload stays as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from testbed.envelope import fastest, nearest
from testbed.timeline import Timeline, dilated
from topologies import Network


@dataclass(frozen=True)
class RunPlan:
    """One run on the emulated network; queues are already fixed in bytes."""

    run: str
    run_dir: str
    network: Network
    mtu: int
    transport: dict[str, Any]
    kernel_datapath: bool
    seed: int
    routing: dict[str, Any]
    scheme: dict[str, Any]
    workload: dict[str, Any]
    timeline: Timeline = field(default_factory=Timeline)
    slowdowns: list[list[dict[str, float]]] = field(default_factory=list)  # of each worker, why it computes slowly
    cpus: list[float | None] = field(default_factory=list)  # of each worker, how many processors it may use
    dilation: float = 1.0  # the machine's seconds to one of the experiment's
    cpu_groups: list[str | None] = field(default_factory=list)  # of each worker, the control group that holds it to its processors
    containers: dict[str, Any] | None = None  # what the hosts are made from if they are containers, see testbed/containers/order.py

    def dilated(self, factor: float) -> RunPlan:
        """Return the plan of the same run where everything takes `factor` times as long."""
        network, timeline = self.network.dilated(factor), dilated(self.timeline, factor)
        return replace(self, network=network, timeline=timeline, dilation=self.dilation * factor)

    @property
    def extremes(self) -> Network:
        """Return the network with each direction at the highest rate and the shortest delay that it ever has."""
        return nearest(fastest(self.network, self.timeline), self.timeline)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "timeline": self.timeline.to_json()}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunPlan:
        """Read it back."""
        return cls(**{**raw, "network": Network.from_json(raw["network"]), "timeline": Timeline.from_json(raw["timeline"])})
