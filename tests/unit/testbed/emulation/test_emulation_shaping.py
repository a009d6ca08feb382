"""Shaping: which queues a direction gets, and the exact words in which tc is told."""

from __future__ import annotations

import re

import pytest

from testbed.emulation import shaping
from testbed.emulation.shaping import QueueShape, Shape, burst_bytes, change_host, filters, leaf, shape_host, shape_of, tool
from topologies import LinkSpec, QueueClass

CLASSES = (QueueClass("training", 24e6, 40e6), QueueClass("bulk", 8e6, 20e6, queue_bytes=30_000, dscp=8))
SHARED = LinkSpec(40e6, queue_bytes=50_000, queue_bdp=None, classes=CLASSES)


@pytest.mark.parametrize(
    ("rate_bps", "mtu", "expected"),
    [
        (1e6, 1500, 1514),  # half a millisecond carries 62 bytes: one frame
        (24_224_000, 1500, 1514),
        (24_240_000, 1500, 1515),
        (40e6, 1500, 2500),
        (40e6, 9000, 9014),
        (1e9, 9000, 62_500),
    ],
)
def test_the_burst_is_what_half_a_millisecond_carries_and_at_least_a_frame(rate_bps, mtu, expected):
    assert burst_bytes(rate_bps, mtu) == expected


def test_a_direction_without_a_rate_is_not_shaped():
    assert shape_of("h1-eth0", LinkSpec(None), 1500) is None


def test_a_direction_without_classes_has_one_queue_of_all_its_rate():
    spec = LinkSpec(40e6, queue_bytes=50_000, queue_bdp=None)
    assert shape_of("h1-eth0", spec, 1500) == Shape("h1-eth0", 40e6, (QueueShape(40e6, 40e6, 2500, 50_000),))
    slow = shape_of("h1-eth0", spec.dilated(5.0), 1500, dilation=5.0)
    assert slow == Shape("h1-eth0", 8e6, (QueueShape(8e6, 8e6, 2500, 50_000),))  # what counts bytes is the same


def test_each_class_has_its_rates_its_burst_by_the_most_it_may_take_and_its_own_limit_or_the_directions():
    fast = LinkSpec(100e6, queue_bytes=50_000, classes=(CLASSES[0], QueueClass("bulk", 8e6, 80e6, queue_bytes=30_000)))
    queues = (QueueShape(24e6, 40e6, 2500, 50_000), QueueShape(8e6, 80e6, 5000, 30_000))
    assert shape_of("s1-eth1", fast, 1500) == Shape("s1-eth1", 100e6, queues)


def test_a_queue_that_was_not_fixed_in_bytes_is_a_fault_of_ours():
    with pytest.raises(AssertionError, match="fixed in bytes"):
        shape_of("h1-eth0", LinkSpec(40e6), 1500)


@pytest.mark.parametrize(("number", "parent", "handle"), [(0, "1:1", "10:"), (1, "1:2", "11:"), (9, "1:a", "19:"), (16, "1:11", "20:")])
def test_the_fifo_of_a_queue_is_under_its_class_with_its_handle_in_hexadecimal(number, parent, handle):
    words = f"qdisc replace dev s1-eth2 parent {parent} handle {handle} bfifo limit 15140"
    assert leaf("s1-eth2", number, 15_140) == words.split()


ADDRESSES = {"h1": "10.0.0.1", "h2": "10.0.0.2", "h3": "10.0.0.3"}


def told(*classes):
    return [" ".join(words) for words in filters("s1-eth1", (QueueClass("rest", 1e6, 4e6), *classes), ADDRESSES)]


def test_what_no_class_claims_needs_no_filter():
    assert told() == []
    assert list(filters("s1-eth1", (), ADDRESSES)) == []


@pytest.mark.parametrize(("dscp", "tos"), [(0, "0x0"), (8, "0x20"), (46, "0xb8"), (63, "0xfc")])
def test_a_mark_is_looked_for_in_the_upper_six_bits_of_the_tos(dscp, tos):
    assert told(QueueClass("a", 1e6, 4e6, dscp=dscp)) == [
        f"filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip tos {tos} 0xfc flowid 1:2"
    ]


def test_a_port_is_looked_for_at_either_end_of_tcp_and_udp_and_nothing_else():
    assert told(QueueClass("a", 1e6, 4e6, port=5201)) == [
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip protocol 6 0xff match ip sport 5201 0xffff flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip protocol 6 0xff match ip dport 5201 0xffff flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip protocol 17 0xff match ip sport 5201 0xffff flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip protocol 17 0xff match ip dport 5201 0xffff flowid 1:2",
    ]


def test_hosts_are_looked_for_by_address_at_either_end():
    assert told(QueueClass("a", 1e6, 4e6, hosts=("h3", "h1"))) == [
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip src 10.0.0.3/32 flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip dst 10.0.0.3/32 flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip src 10.0.0.1/32 flowid 1:2",
        "filter add dev s1-eth1 parent 1: protocol ip prio 2 u32 match ip dst 10.0.0.1/32 flowid 1:2",
    ]


def test_any_criterion_of_a_class_is_enough_and_earlier_classes_come_first():
    found = told(QueueClass("a", 1e6, 4e6, dscp=8, port=80, hosts=("h2",)), QueueClass("b", 1e6, 4e6, dscp=9))
    assert [
        re.sub(r".* prio (\d+) u32 (?:match ip protocol (?:6|17) 0xff )?match ip (\w+) .* flowid ", r"\1 \2 ", words) for words in found
    ] == [
        "2 tos 1:2",
        "2 sport 1:2",
        "2 dport 1:2",
        "2 sport 1:2",
        "2 dport 1:2",
        "2 src 1:2",
        "2 dst 1:2",
        "3 tos 1:3",
    ]


def test_the_tenth_class_is_numbered_in_hexadecimal_but_its_priority_is_not():
    classes = [QueueClass(f"c{dscp}", 1e6, 4e6, dscp=dscp) for dscp in range(1, 10)]
    assert told(*classes)[-1] == "filter add dev s1-eth1 parent 1: protocol ip prio 10 u32 match ip tos 0x24 0xfc flowid 1:a"


@pytest.fixture
def commands(monkeypatch):
    """Collect the commands that would be run."""
    found: list[str] = []
    monkeypatch.setattr(shaping, "tool", lambda *command, given: found.extend(f"{command[0]} {line}" for line in given.splitlines()))
    return found


def test_a_hosts_interface_gets_an_htb_a_class_of_the_whole_rate_the_queues_below_it_and_their_fifos(commands):
    shape_host(shape_of("h1-eth0", SHARED, 1500))
    assert commands == [
        "tc qdisc add dev h1-eth0 root handle 1: htb default 1",
        "tc class add dev h1-eth0 parent 1: classid 1:fffe htb rate 40000000bit ceil 40000000bit burst 2500 cburst 2500",
        "tc class add dev h1-eth0 parent 1:fffe classid 1:1 htb rate 24000000bit ceil 40000000bit burst 2500 cburst 2500",
        "tc class add dev h1-eth0 parent 1:fffe classid 1:2 htb rate 8000000bit ceil 20000000bit burst 1514 cburst 1514",
        "tc qdisc replace dev h1-eth0 parent 1:1 handle 10: bfifo limit 50000",
        "tc qdisc replace dev h1-eth0 parent 1:2 handle 11: bfifo limit 30000",
    ]


def test_a_change_of_rate_touches_the_classes_and_no_queue(commands):
    change_host(shape_of("h1-eth0", SHARED.with_rate(20e6), 1500))
    assert commands == [
        "tc class change dev h1-eth0 parent 1: classid 1:fffe htb rate 20000000bit ceil 20000000bit burst 1514 cburst 1514",
        "tc class change dev h1-eth0 parent 1:fffe classid 1:1 htb rate 12000000bit ceil 20000000bit burst 1514 cburst 1514",
        "tc class change dev h1-eth0 parent 1:fffe classid 1:2 htb rate 4000000bit ceil 10000000bit burst 1514 cburst 1514",
    ]


def test_rates_are_told_in_whole_bits(commands):
    change_host(Shape("h1-eth0", 1_000_000.6, (QueueShape(999_999.6, 1_000_000.4, 1514, 15_140),)))
    assert [re.findall(r"(\d+)bit", command) for command in commands] == [["1000001", "1000001"], ["1000000", "1000000"]]


def test_a_command_gets_its_input_and_gives_its_output():
    assert tool("cat", given="two\nlines\n") == "two\nlines\n"


def test_a_command_that_fails_is_told_with_its_complaint():
    with pytest.raises(RuntimeError, match=r"^sh -c echo no such queue >&2; exit 2 failed: no such queue$"):
        tool("sh", "-c", "echo no such queue >&2; exit 2")
