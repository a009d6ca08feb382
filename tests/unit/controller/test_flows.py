"""Rules in the switch's own terms."""

from __future__ import annotations

import pytest

from controller.flows import ArpReply, Flow, Group, Match, Output, flow, group_number
from controller.job import HostAddress
from controller.routing import AnswerArp, Forward

PORTS = {"h1": 1, "p1": 3, "p2": 2}
HOSTS = {"h1": HostAddress("02:00:00:00:00:01", "10.0.0.1"), "h3": HostAddress("02:00:00:00:00:03", "10.0.0.3")}


def test_a_path_rule_matches_port_and_both_addresses():
    rule = Forward("l1", "h1", "h3", "h1", ("p1",), tcp_only=False, priority=100, distance=0)
    match = Match(100, in_port=1, eth_src="02:00:00:00:00:01", eth_dst="02:00:00:00:00:03")
    assert flow(rule, PORTS, HOSTS) == Flow(match, Output(3))


def test_several_next_hops_are_a_group_of_their_ports():
    rule = Forward("l1", None, "h3", None, ("p1", "p2"), tcp_only=True, priority=200, distance=0)
    match = Match(200, eth_dst="02:00:00:00:00:03", tcp_only=True)
    assert flow(rule, PORTS, HOSTS) == Flow(match, Group(group_number(("p1", "p2")), (2, 3)))


def test_the_number_of_a_group_is_that_of_its_set_of_next_hops_in_every_process():
    assert group_number(("p1", "p2")) == group_number(("p2", "p1")) == 277848160
    assert group_number(("p1", "p2")) != group_number(("p1", "p2", "p3"))


def test_an_arp_rule_matches_the_address_asked_for():
    assert flow(AnswerArp("l1", "h3", 400), PORTS, HOSTS) == Flow(
        Match(400, arp_target="10.0.0.3"), ArpReply("02:00:00:00:00:03", "10.0.0.3")
    )


def test_a_rule_over_a_port_that_is_not_there_is_a_fault():
    with pytest.raises(KeyError):
        flow(Forward("l1", "h1", "h3", "h1", ("p3",), tcp_only=False, priority=100, distance=0), PORTS, HOSTS)
