"""Small networks to be controlled, and the job that a controller of them gets."""

from __future__ import annotations

from controller.job import ControllerJob, HostAddress, SwitchWiring
from controller.routing import RoutingPolicy
from topologies import LinkSpec, Network, leafspine

PLAIN = LinkSpec(rate_bps=1e7, queue_bytes=100_000)


def two_spines(workers: int = 4) -> Network:
    """Two leaves l1 l2, two spines p1 p2; h1 h2 on l1, h3 h4 on l2."""
    return leafspine(workers, leaves=2, spines=2, fabric=PLAIN, access=PLAIN)


def job(network: Network, routing: RoutingPolicy | None = None, generation: int = 0, listen_port: int = 6653, board=None) -> ControllerJob:
    """Wire a network as the emulation does: ports are numbered from 1 in the order of the links."""
    ports: dict[str, dict[str, str]] = {switch: {} for switch in network.switches}
    for link in network.links:
        for switch, neighbour in ((link.a, link.b), (link.b, link.a)):
            if switch in ports:
                ports[switch][neighbour] = f"{switch}-eth{len(ports[switch]) + 1}"
    return ControllerJob(
        network=network,
        routing=routing or RoutingPolicy(),
        switches={switch: SwitchWiring(number + 1, ports[switch]) for number, switch in enumerate(network.switches)},
        hosts={host: HostAddress(f"02:00:00:00:00:{i + 1:02x}", f"10.0.0.{i + 1}") for i, host in enumerate(network.all_hosts)},
        listen_port=listen_port,
        generation=generation,
        board=board,
    )
