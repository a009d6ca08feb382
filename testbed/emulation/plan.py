"""What the runner asks of a sandbox: one run, as plain data that crosses a pipe."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from topologies import Link, LinkSpec, Network


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
    scheme: dict[str, Any]
    workload: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> RunPlan:
        """Read it back."""
        return cls(**{**raw, "network": network_from_json(raw["network"])})


def network_from_json(raw: dict[str, Any]) -> Network:
    """Read back what `dataclasses.asdict` made of a Network."""
    links = tuple(
        Link(**{**link, "forward": LinkSpec(**link["forward"]), "backward": LinkSpec(**link["backward"])}) for link in raw["links"]
    )
    return Network(tuple(raw["hosts"]), tuple(raw["switches"]), links)
