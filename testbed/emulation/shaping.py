"""Rates and queues of a direction, in tc's and OVSDB's words: one HTB class a queue, a byte-limited FIFO under each, filters between them.

On a switch port the HTB is Open vSwitch's own (see openvswitch.py), on a host's interface it is made here; both number their classes alike:
queue n is class 1:(n+1), its FIFO has the handle LEAF_HANDLE + n, and what no filter claims goes into queue 0.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from topologies import LinkSpec, QueueClass
from topologies.model import ETHERNET_HEADER_BYTES

BURST_S = 0.5e-3
TCP, UDP = 6, 17
LEAF_HANDLE = 0x10  # handle of queue 0's FIFO, "10:" in tc's notation


@dataclass(frozen=True)
class QueueShape:
    """One queue: the rate it is sure of, the rate it may take, its limit."""

    min_bps: float
    max_bps: float
    burst_bytes: int
    queue_bytes: int


@dataclass(frozen=True)
class Shape:
    """The shaping of one interface's egress."""

    interface: str
    rate_bps: float
    queues: tuple[QueueShape, ...]


def shape_of(interface: str, spec: LinkSpec, mtu: int, dilation: float = 1.0) -> Shape | None:
    """Return how a direction is to be shaped; None if it has no rate. Bursts have the bytes that they have without dilation."""
    if spec.rate_bps is None:
        return None
    queues = []
    for one in spec.queues():
        assert one.queue_bytes is not None, "queues are fixed in bytes before anything is booted"
        queues.append(QueueShape(one.min_bps, one.max_bps, burst_bytes(one.max_bps * dilation, mtu), one.queue_bytes))
    return Shape(interface, spec.rate_bps, tuple(queues))


def burst_bytes(rate_bps: float, mtu: int) -> int:
    """Return the token bucket of a shaped direction: what half a millisecond carries, at least one frame.

    A timer that fires late must be made up for, or a busy machine never reaches the rate; more than this would let small
    payloads through at line speed, which flatters compression.
    """
    return max(mtu + ETHERNET_HEADER_BYTES, round(rate_bps / 8 * BURST_S))


def shape_host(shape: Shape) -> None:
    """Make HTB, classes and FIFOs on a host's interface, in the current network namespace."""
    commands = [["qdisc", "add", "dev", shape.interface, "root", "handle", "1:", "htb", "default", "1"]]
    commands += _host_classes(shape, "add")
    commands += [leaf(shape.interface, number, queue.queue_bytes) for number, queue in enumerate(shape.queues)]
    _tc(commands)


def change_host(shape: Shape) -> None:
    """Change the rates of a host's interface in place: no queue is rebuilt, no packet lost."""
    _tc(_host_classes(shape, "change"))


def _host_classes(shape: Shape, verb: str) -> list[list[str]]:
    whole = max((queue.burst_bytes for queue in shape.queues), default=0)
    commands = []
    for parent, classid, low_bps, high_bps, burst in [
        ("1:", "1:fffe", shape.rate_bps, shape.rate_bps, whole),
        *(("1:fffe", f"1:{n + 1:x}", q.min_bps, q.max_bps, q.burst_bytes) for n, q in enumerate(shape.queues)),
    ]:
        rates = ["rate", f"{round(low_bps)}bit", "ceil", f"{round(high_bps)}bit", "burst", str(burst), "cburst", str(burst)]
        commands.append(["class", verb, "dev", shape.interface, "parent", parent, "classid", classid, "htb", *rates])
    return commands


def _tc(commands: list[list[str]]) -> None:
    """Run several commands by one process."""
    tool("tc", "-batch", "-", given="\n".join(" ".join(command) for command in commands))


def leaf(interface: str, number: int, queue_bytes: int) -> list[str]:
    """Return the arguments of tc that put the byte-limited FIFO under a class."""
    place = ["dev", interface, "parent", f"1:{number + 1:x}", "handle", f"{LEAF_HANDLE + number:x}:"]
    return ["qdisc", "replace", *place, "bfifo", "limit", str(queue_bytes)]


def filters(interface: str, classes: tuple[QueueClass, ...], addresses: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the arguments of tc that send each class's packets into its queue; any of a class's criteria is enough."""
    for number, one in enumerate(classes):
        for matches in _matches(one, addresses):
            place = ["dev", interface, "parent", "1:", "protocol", "ip", "prio", str(number + 1)]
            yield ["filter", "add", *place, "u32", *matches, "flowid", f"1:{number + 1:x}"]


def _matches(one: QueueClass, addresses: Mapping[str, str]) -> Iterator[list[str]]:
    if one.dscp is not None:
        yield ["match", "ip", "tos", f"{one.dscp << 2:#x}", "0xfc"]
    if one.port is not None:
        for protocol in (TCP, UDP):  # others have something else where these have their ports
            for end in ("sport", "dport"):
                yield ["match", "ip", "protocol", str(protocol), "0xff", "match", "ip", end, str(one.port), "0xffff"]
    for host in one.hosts:
        for end in ("src", "dst"):
            yield ["match", "ip", end, f"{addresses[host]}/32"]


def tool(*command: str, given: str | None = None) -> str:
    """Run a command, with this as its standard input; raise with its complaint if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, input=given)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
