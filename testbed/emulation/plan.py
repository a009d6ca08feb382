"""What the runner asks of a sandbox: one run, as plain data that crosses a pipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunPlan:
        """Read it back."""
        return cls(**{**raw, "network": Network.from_json(raw["network"])})
