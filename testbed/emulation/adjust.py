"""Change the links of a booted network in place: no queue is rebuilt, and no packet that fits is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork
from testbed.emulation.shaping import change_host, shape_of, tool
from testbed.spec.traces import UNLIMITED, RateValue
from topologies import Direction
from topologies.model import ETHERNET_HEADER_BYTES

UNLIMITED_BPS = 10e9  # what "no limit" is in HTB's words: far over what any machine carries here
LONGEST_WAIT_S = 0.1  # for one frame, at a rate of nothing: HTB finishes it before it follows another rate


def set_rates(network: EmulatedNetwork, rates: Mapping[Direction, RateValue]) -> None:
    """Change the rates of shaped directions at once, their classes in proportion; telemetry knows when they are in force."""
    longest_s = LONGEST_WAIT_S * network.dilation
    specs = {direction.name: direction.spec.with_rate(shaped_bps(rate, network.mtu, longest_s)) for direction, rate in rates.items()}
    ports = []
    for direction in rates:
        shape = shape_of(
            network.interface_between(direction.source, direction.target), specs[direction.name], network.mtu, network.dilation
        )
        assert shape is not None
        if direction.source in network.host_pids:
            with network_namespace(network.host_pids[direction.source]):
                change_host(shape)
        else:
            ports.append(shape)
    network.openvswitch.change(ports)
    for i, queue in enumerate(network.queues):
        if queue.direction.name in specs:
            network.queues[i] = replace(queue, kind=specs[queue.direction.name].queues()[queue.number])
            network.board.set_configured(i, network.queues[i].rate_bps)


def shaped_bps(rate: RateValue, mtu: int, longest_s: float = LONGEST_WAIT_S) -> float:
    """Return the rate in numbers: much for no limit, and for nothing so little that a frame takes a tenth of a second."""
    if rate == UNLIMITED:
        return UNLIMITED_BPS
    return float(rate) or (mtu + ETHERNET_HEADER_BYTES) * 8 / longest_s


def set_delay(
    network: EmulatedNetwork, direction: Direction, delay_s: float | None = None, jitter_s: float | None = None, loss: float | None = None
) -> None:
    """Change what the delay element does to a direction; frames that it holds keep their time, and none overtakes another."""
    if network.delay is None or not network.has_delay_element(direction):  # then it is asked for the nothing that it has
        assert not (delay_s or jitter_s or loss), f"{direction.name} has no delay element"
        return
    network.delay.change(direction.name, network.held_s(delay_s), jitter_s, loss)
    if delay_s is not None:
        for i, queue in enumerate(network.queues):
            if queue.direction.name == direction.name:
                network.board.set_delay(i, delay_s)


def set_state(network: EmulatedNetwork, link: str, up: bool) -> None:
    """Take both switch ports of a link down, or up again; of a host's link the switch's only, as a host's routes would go with it."""
    for direction in network.description.directions():
        if direction.link == link and direction.source not in network.host_pids:
            tool("ip", "link", "set", network.interface_between(direction.source, direction.target), "up" if up else "down")
