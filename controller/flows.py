"""What one switch is to hold, in its own terms: rules that name nodes become flows that match port numbers and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from controller.job import HostAddress
from controller.routing import AnswerArp, Rule

_GROUP_BITS = 0x7FFFFFFF  # OpenFlow reserves the highest numbers


@dataclass(frozen=True, slots=True)
class Match:
    """What a flow applies to; a switch holds one flow a match."""

    priority: int
    in_port: int | None = None
    eth_src: str | None = None
    eth_dst: str | None = None
    tcp_only: bool = False
    arp_target: str | None = None  # requests for this IPv4 address


@dataclass(frozen=True, slots=True)
class Output:
    """Send by one port."""

    port: int


@dataclass(frozen=True, slots=True)
class Group:
    """Send by one of several ports, chosen by connection among those that are up."""

    number: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArpReply:
    """Turn the request around: this address is at this MAC."""

    mac: str
    ip: str


@dataclass(frozen=True, slots=True)
class Flow:
    """What the switch does with what matches."""

    match: Match
    action: Output | Group | ArpReply


def flow(rule: Rule, ports: Mapping[str, int], hosts: Mapping[str, HostAddress]) -> Flow:
    """Put a rule in the terms of its switch, whose ports are given by the name of the neighbour."""
    if isinstance(rule, AnswerArp):
        host = hosts[rule.host]
        return Flow(Match(rule.priority, arp_target=host.ip), ArpReply(host.mac, host.ip))
    match = Match(
        rule.priority,
        in_port=None if rule.came_from is None else ports[rule.came_from],
        eth_src=None if rule.source is None else hosts[rule.source].mac,
        eth_dst=hosts[rule.target].mac,
        tcp_only=rule.tcp_only,
    )
    outputs = sorted(ports[node] for node in rule.next_hops)
    if len(outputs) == 1:
        return Flow(match, Output(outputs[0]))
    return Flow(match, Group(group_number(rule.next_hops), tuple(outputs)))


def group_number(next_hops: tuple[str, ...]) -> int:
    """Number a group by its members' names: the same in every process, so that a successor finds its predecessor's groups."""
    return crc32("\0".join(sorted(next_hops)).encode()) & _GROUP_BITS
