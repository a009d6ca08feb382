"""What the controller process is told when it starts: the network, how to route it, and how switches and hosts are called on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from controller.routing import RoutingPolicy
from topologies import Network


@dataclass(frozen=True)
class SwitchWiring:
    """A switch as OpenFlow and the kernel name it."""

    dpid: int
    ports: dict[str, str]  # neighbour -> interface


@dataclass(frozen=True)
class HostAddress:
    """A host's addresses."""

    mac: str
    ip: str


@dataclass(frozen=True)
class ControllerJob:
    """One controller's life. A successor has the same job, but for the generation: the number of controllers before it."""

    network: Network
    routing: RoutingPolicy
    switches: dict[str, SwitchWiring]
    hosts: dict[str, HostAddress]
    listen_port: int
    generation: int
    board: str | None  # where the switches' counters are written; None: they are not asked for

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> ControllerJob:
        """Read it from plain data."""
        job = cls(
            network=Network.from_json(raw["network"]),
            routing=RoutingPolicy.from_json(raw["routing"]),
            switches={name: SwitchWiring(**switch) for name, switch in raw["switches"].items()},
            hosts={name: HostAddress(**host) for name, host in raw["hosts"].items()},
            listen_port=raw["listen_port"],
            generation=raw["generation"],
            board=raw["board"],
        )
        if set(job.switches) != set(job.network.switches) or set(job.hosts) != set(job.network.all_hosts):
            raise ValueError("a job wires exactly the switches and hosts of its network")
        return job
