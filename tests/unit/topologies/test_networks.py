"""Networks: who is joined to whom, how long a round trip takes, and how large the queues are."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from topologies import Link, LinkSpec, Network, QueueClass, dumbbell, leafspine, star

SLOW = LinkSpec(40e6, 0.005)
FAST = LinkSpec(100e6)


def test_a_star_has_one_link_a_host_and_each_is_a_bottleneck():
    network = star(3, FAST)
    assert network.hosts == ("h1", "h2", "h3")
    assert [(link.a, link.b) for link in network.links] == [("h1", "s1"), ("h2", "s1"), ("h3", "s1")]
    assert all(link.bottleneck for link in network.links)


@pytest.mark.parametrize(("workers", "left"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_dumbbell_has_hosts_on_either_side(workers, left):
    sides = [link.b for link in dumbbell(workers, SLOW, FAST).links if link.name != "bottleneck"]
    assert sides == ["s1"] * left + ["s2"] * (workers - left)


def test_leaves_share_the_hosts_evenly():
    network = leafspine(5, 2, 3, SLOW, FAST)
    assert [link.b for link in network.links if link.name.startswith("access")] == ["l1", "l1", "l1", "l2", "l2"]
    assert sum(link.bottleneck for link in network.links) == 6


def test_directions_are_shaped_apart_and_named_by_their_ends():
    network = dumbbell(2, SLOW, FAST, bottleneck_back=LinkSpec(10e6, 0.02))
    there, back = list(network.directions())[:2]
    assert (there.name, there.spec.rate_bps) == ("bottleneck:s1->s2", 40e6)
    assert (back.name, back.spec.rate_bps) == ("bottleneck:s2->s1", 10e6)
    assert [d.name for d in network.path("h2", "h1")] == ["access-h2:h2->s2", "bottleneck:s2->s1", "access-h1:s1->h1"]
    assert network.base_rtt_s("h1", "h2") == pytest.approx(0.025)


def uplinks(network):
    """Return the switch of every host, by host."""
    return {link.a: link.b for link in network.links if link.name.startswith("access")}


@pytest.mark.parametrize(
    ("network", "switches"),
    [
        (star(2, SLOW, traffic_hosts=3), ["s1", "s1", "s1"]),
        (dumbbell(4, SLOW, FAST, traffic_hosts=3), ["s1", "s2", "s1"]),  # t1 to t2 crosses the bottleneck
        (leafspine(4, 2, 2, SLOW, FAST, traffic_hosts=3), ["l1", "l2", "l1"]),
    ],
)
def test_hosts_for_traffic_are_joined_like_the_workers_and_are_no_bottleneck(network, switches):
    assert network.traffic_hosts == ("t1", "t2", "t3")
    assert network.all_hosts == (*network.hosts, "t1", "t2", "t3")
    assert [uplinks(network)[host] for host in network.traffic_hosts] == switches
    links = {link.name: link for link in network.links}
    assert {links[f"access-{host}"].forward for host in network.all_hosts} == {links["access-h1"].forward}
    assert not any(links[f"access-{host}"].bottleneck for host in network.traffic_hosts)


@pytest.mark.parametrize("kind", [lambda n: star(4, SLOW, traffic_hosts=n), lambda n: dumbbell(4, SLOW, FAST, traffic_hosts=n)])
def test_hosts_for_traffic_change_nothing_about_the_workers_network(kind):
    without, beside = kind(0).with_queues_fixed(1500), kind(2).with_queues_fixed(1500)
    assert beside.hosts == without.hosts
    assert [link for link in beside.links if link.a not in beside.traffic_hosts] == list(without.links)
    assert all(direction.spec.queue_bytes for direction in beside.directions())


@pytest.mark.parametrize(("rate_bps", "mtu"), [(50e6, 1500), (51e6, 9000), (None, 1500)])
def test_the_mtu_is_large_only_above_50_mbit(rate_bps, mtu):
    assert star(2, LinkSpec(rate_bps)).auto_mtu() == mtu


def test_a_queue_in_bdps_is_fixed_by_the_longest_path_over_the_link():
    network = dumbbell(4, SLOW, FAST).with_queues_fixed(1500)
    queues = {direction.name: direction.spec.queue_bytes for direction in network.directions()}
    assert queues["bottleneck:s1->s2"] == 50_000
    assert queues["access-h1:h1->s1"] == 125_000


def test_a_queue_in_bdps_holds_at_least_ten_frames_and_one_in_bytes_is_kept():
    network = star(2, LinkSpec(1e6), LinkSpec(1e6, queue_bytes=3000, queue_bdp=None)).with_queues_fixed(1500)
    assert network.links[0].forward.queue_bytes == 15_140
    assert network.links[0].backward.queue_bytes == 3000


def test_a_direction_is_delayed_if_it_has_delay_jitter_or_loss():
    assert not FAST.is_delayed
    assert SLOW.is_delayed
    assert LinkSpec(1e6, loss=0.01).is_delayed
    assert star(2, FAST, SLOW).links[0].is_delayed


def triangle():
    """Return two hosts and three switches in a ring: the short way and the long way between the hosts differ in length and in delay."""
    links = [Link(f"{a}-{b}", a, b, LinkSpec(8e6, 0.010), LinkSpec(8e6, 0.030)) for a, b in (("s1", "s2"), ("s1", "s3"), ("s3", "s2"))]
    return Network(("h1", "h2"), ("s1", "s2", "s3"), (Link("a1", "h1", "s1", FAST, FAST), Link("a2", "h2", "s2", FAST, FAST), *links))


LONG_WAY = ("h1", "s1", "s3", "s2", "h2")


def names(directions):
    return [direction.name for direction in directions]


def test_a_route_is_taken_in_its_own_direction_only():
    routed = triangle().with_routes([list(LONG_WAY)])
    assert names(routed.path("h1", "h2")) == ["a1:h1->s1", "s1-s3:s1->s3", "s3-s2:s3->s2", "a2:s2->h2"]
    assert names(routed.path("h2", "h1")) == ["a2:h2->s2", "s1-s2:s2->s1", "a1:s1->h1"]
    assert routed.base_rtt_s("h1", "h2") == pytest.approx(0.010 + 0.010 + 0.030)


def test_routes_are_given_to_a_copy_and_replace_the_earlier_ones():
    network = triangle()
    routed = network.with_routes([LONG_WAY, LONG_WAY[::-1]])
    assert network.routes == ()
    assert routed.routes == (LONG_WAY, LONG_WAY[::-1])
    assert routed.with_routes([]) == network


def test_a_route_that_leaves_the_links_is_refused():
    with pytest.raises(ValueError, match="from s1 to h2, but no link joins them"):
        triangle().with_routes([("h1", "s1", "h2")])


def test_a_queue_in_bdps_is_fixed_by_the_routes_over_the_link_too():
    def queues(network):
        return {direction.name: direction.spec.queue_bytes for direction in network.with_queues_fixed(1500).directions()}

    least, short_way, long_way = 15_140, 40_000, 80_000  # at 8 Mbit/s: no path, 40 ms, 80 ms
    unrouted = queues(triangle())
    assert [unrouted[name] for name in ("s1-s2:s1->s2", "s1-s3:s1->s3", "s3-s2:s2->s3")] == [short_way, least, least]
    routed = queues(triangle().with_routes([LONG_WAY, LONG_WAY[::-1]]))
    assert [routed[name] for name in ("s1-s2:s1->s2", "s1-s3:s1->s3", "s3-s2:s2->s3")] == [short_way, long_way, long_way]


def test_queues_do_not_depend_on_the_choice_among_equal_paths():
    network = leafspine(4, 2, 2, SLOW, FAST)
    routed = network.with_routes([("h1", "l1", "p2", "l2", "h4"), ("h4", "l2", "p2", "l1", "h1")])
    assert routed.with_queues_fixed(1500).links == network.with_queues_fixed(1500).links
    assert routed.with_queues_fixed(1500).routes == routed.routes


def test_each_of_several_equal_paths_has_its_own_round_trip():
    quick, slow = LinkSpec(8e6, 0.010), LinkSpec(8e6, 0.050)
    network = leafspine(2, 2, 2, quick, FAST)
    links = tuple(Link(link.name, link.a, link.b, slow, slow) if link.b == "p2" else link for link in network.links)
    queues = {d.name: d.spec.queue_bytes for d in Network(network.hosts, network.switches, links).with_queues_fixed(1500).directions()}
    assert (queues["fabric-l1-p1:l1->p1"], queues["fabric-l1-p2:l1->p2"]) == (40_000, 200_000)


def test_a_network_survives_json_with_its_routes():
    network = leafspine(4, 2, 2, SLOW, FAST, LinkSpec(1e6, loss=0.1)).with_routes([("h1", "l1", "p2", "l2", "h4")])
    assert Network.from_json(json.loads(json.dumps(asdict(network)))) == network


def test_a_network_survives_json_with_its_hosts_for_traffic_and_older_ones_have_none():
    network = dumbbell(4, SLOW, FAST, traffic_hosts=2)
    raw = json.loads(json.dumps(asdict(network)))
    assert Network.from_json(raw) == network
    older = json.loads(json.dumps(asdict(dumbbell(4, SLOW, FAST))))
    del older["traffic_hosts"]
    assert Network.from_json(older) == dumbbell(4, SLOW, FAST)


TRAINING, BULK = QueueClass("training", 24e6, 40e6), QueueClass("bulk", 8e6, 20e6, 30_000, dscp=8, port=5201, hosts=("h1", "h4"))
SHARED = LinkSpec(40e6, 0.005, classes=(TRAINING, BULK))


def test_a_direction_without_a_rate_has_no_queue_and_one_without_classes_has_one_without_a_name():
    assert LinkSpec(None, classes=(TRAINING, BULK)).queues() == ()
    assert LinkSpec(40e6, queue_bytes=50_000).queues() == (QueueClass("", 40e6, 40e6, 50_000),)
    assert LinkSpec(40e6).queues() == (QueueClass("", 40e6, 40e6, None),)


def test_the_queues_of_classes_are_in_their_order_and_those_without_a_limit_have_the_directions():
    assert SHARED.queues() == (TRAINING, BULK)
    limited = replace(SHARED, queue_bytes=50_000, classes=(BULK, TRAINING))
    assert limited.queues() == (BULK, replace(TRAINING, queue_bytes=50_000))
    assert limited.classes == (BULK, TRAINING)


def test_a_limit_in_bdps_is_fixed_for_the_classes_without_one_of_their_own():
    network = dumbbell(4, SHARED, FAST, bottleneck_back=replace(SHARED, rate_bps=80e6)).with_queues_fixed(1500)
    limits = {direction.name: [one.queue_bytes for one in direction.spec.queues()] for direction in network.directions()}
    assert limits["bottleneck:s1->s2"] == [50_000, 30_000]
    assert limits["bottleneck:s2->s1"] == [100_000, 30_000]
    assert limits["access-h1:h1->s1"] == [125_000]


def test_at_another_rate_the_classes_are_in_proportion_and_nothing_else_is_different():
    half = (QueueClass("training", 12e6, 20e6), replace(BULK, min_bps=4e6, max_bps=10e6))
    assert SHARED.with_rate(20e6) == replace(SHARED, rate_bps=20e6, classes=half)
    assert SHARED.with_rate(20e6).with_rate(40e6) == SHARED
    assert FAST.with_rate(1e6) == replace(FAST, rate_bps=1e6)


def test_a_direction_without_a_rate_gets_one():
    assert LinkSpec(None, 0.005).with_rate(1e6) == LinkSpec(1e6, 0.005)


def test_a_direction_and_a_network_survive_json_with_their_classes():
    assert LinkSpec.from_json(json.loads(json.dumps(asdict(SHARED)))) == SHARED
    network = dumbbell(4, SHARED, FAST, bottleneck_back=SHARED.with_rate(10e6))
    assert Network.from_json(json.loads(json.dumps(asdict(network)))) == network


def test_a_dilated_network_takes_longer_and_keeps_what_counts_bytes():
    classes = (QueueClass("training", 6e6, 8e6, 9000), QueueClass("background", 2e6, 4e6, 6000, dscp=8))
    middle = LinkSpec(8e6, 0.005, 0.001, 0.01, queue_bdp=2.0, classes=classes)
    network = dumbbell(2, middle, LinkSpec(100e6)).with_queues_fixed(1500)
    slow = network.dilated(5.0)
    spec = slow.links[0].forward
    assert (spec.rate_bps, spec.delay_s, spec.jitter_s, spec.loss) == (1.6e6, 0.025, 0.005, 0.01)
    assert [(one.min_bps, one.max_bps) for one in spec.classes] == [(1.2e6, 1.6e6), (0.4e6, 0.8e6)]
    for before, after in zip(network.directions(), slow.directions(), strict=True):
        assert [one.queue_bytes for one in before.spec.queues()] == [one.queue_bytes for one in after.spec.queues()]
    assert slow.dilated(1 / 5).base_rtt_s("h1", "h2") == pytest.approx(network.base_rtt_s("h1", "h2"))
    assert LinkSpec(None, 0.002).dilated(5.0) == LinkSpec(None, 0.01)
