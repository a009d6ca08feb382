"""What a ring of workers asks of a network, worked out by hand."""

from __future__ import annotations

import math

import pytest

from topologies import Link, LinkSpec, Network, dumbbell, star
from topologies.load import longest_rtt_s, phases_of, ring_hops, ring_load_bps, transfer_s

BOTTLENECK = LinkSpec(40e6, 0.005)
ACCESS = LinkSpec(100e6, 0.001)
FREE = LinkSpec(None)


def ring_transfer_s(network):
    return transfer_s(network, *phases_of(network, "ring", [1e6] * len(network.hosts)))


def ring_rtt_s(network):
    return longest_rtt_s(network, *phases_of(network, "ring", [1.0] * len(network.hosts)))


def test_a_ring_of_four_over_a_dumbbell_crosses_the_bottleneck_once_each_way():
    names = [[direction.name for direction in path] for path in ring_hops(dumbbell(4, BOTTLENECK, ACCESS))]
    assert names == [
        ["access-h1:h1->s1", "access-h2:s1->h2"],
        ["access-h2:h2->s1", "bottleneck:s1->s2", "access-h3:s2->h3"],
        ["access-h3:h3->s2", "access-h4:s2->h4"],
        ["access-h4:h4->s2", "bottleneck:s2->s1", "access-h1:s1->h1"],
    ]


def test_a_ring_of_four_over_a_dumbbell_asks_six_traversals_at_the_bottlenecks_rate():
    assert ring_load_bps(dumbbell(4, BOTTLENECK, ACCESS)) == 6 * 40e6


def test_hops_that_cross_the_same_link_share_its_rate():
    links = [Link(f"access-h{i}", f"h{i}", f"s{2 - i % 2}", ACCESS, ACCESS) for i in range(1, 5)]  # neighbours on opposite sides
    network = Network(("h1", "h2", "h3", "h4"), ("s1", "s2"), (Link("bottleneck", "s1", "s2", BOTTLENECK, BOTTLENECK), *links))
    assert ring_load_bps(network) == 8 * 40e6 / 2
    assert ring_transfer_s(network) == pytest.approx(2 * 0.2)


def test_access_links_slower_than_the_bottleneck_set_the_pace():
    assert ring_load_bps(dumbbell(4, BOTTLENECK, LinkSpec(10e6))) == 6 * 10e6


def test_the_slower_direction_of_a_bottleneck_sets_the_pace():
    assert ring_load_bps(dumbbell(4, BOTTLENECK, ACCESS, bottleneck_back=LinkSpec(5e6))) == 6 * 5e6


def test_a_ring_over_a_star_crosses_one_switch_a_hop():
    assert ring_load_bps(star(5, LinkSpec(20e6))) == 5 * 20e6


def test_an_unshaped_network_can_be_asked_for_anything():
    assert ring_load_bps(star(3, FREE)) == math.inf
    assert ring_transfer_s(star(3, FREE)) == 0


@pytest.mark.parametrize(
    ("network", "seconds"),
    [
        (dumbbell(4, BOTTLENECK, ACCESS), 0.2),  # 1 MB at 40 Mbit/s
        (dumbbell(4, BOTTLENECK, FREE), 0.2),
        (dumbbell(4, LinkSpec(400e6), ACCESS), 0.08),  # 1 MB at 100 Mbit/s
        (star(4, LinkSpec(80e6), LinkSpec(16e6)), 0.5),
    ],
)
def test_a_transfer_takes_as_long_as_the_slowest_link_needs(network, seconds):
    assert ring_transfer_s(network) == pytest.approx(seconds)


def test_the_rings_round_trip_is_that_of_the_farthest_neighbours():
    assert ring_rtt_s(dumbbell(4, BOTTLENECK, ACCESS)) == pytest.approx(2 * (0.001 + 0.005 + 0.001))
    assert ring_rtt_s(star(3, ACCESS)) == pytest.approx(0.004)
