"""Networks: who is joined to whom, how long a round trip takes, and how large the queues are."""

from __future__ import annotations

import pytest

from topologies import LinkSpec, dumbbell, leafspine, star

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


def test_only_the_leaf_spine_has_loops():
    assert not star(4, FAST).has_loops
    assert not dumbbell(4, SLOW, FAST).has_loops
    assert leafspine(4, 2, 2, SLOW, FAST).has_loops


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
