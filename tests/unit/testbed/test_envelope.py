import pytest

from testbed.envelope import fastest, heaviest, nearest, watched
from testbed.timeline import Change, Timeline
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(2, LinkSpec(10e6, 0.005), LinkSpec(100e6))


def directions(network):
    return {direction.name: direction for direction in network.directions()}


def test_the_fastest_network_has_every_direction_at_its_highest_rate():
    changes = (
        Change("bottleneck", at_s=1.0, rate_bps=40e6),
        Change("bottleneck", "backward", at_step=4, rate_bps=50e6),
        Change("bottleneck", at_s=2.0, rate_bps="unlimited"),
        Change("access-h1", at_s=2.0, rate_bps=1e6),
    )
    found = directions(fastest(NETWORK, Timeline(changes)))
    assert found["bottleneck:s1->s2"].spec.rate_bps == 40e6
    assert found["bottleneck:s2->s1"].spec.rate_bps == 50e6
    assert found["access-h1:h1->s1"].spec.rate_bps == 100e6


def test_the_nearest_network_has_every_direction_at_its_shortest_delay():
    changes = (Change("bottleneck", "forward", at_s=1.0, delay_s=0.001), Change("bottleneck", at_s=2.0, delay_s=0.050))
    found = directions(nearest(NETWORK, Timeline(changes)))
    assert found["bottleneck:s1->s2"].spec.delay_s == 0.001
    assert found["bottleneck:s2->s1"].spec.delay_s == 0.005


def test_a_link_whose_rate_changes_is_watched_like_a_bottleneck():
    found = watched(NETWORK, Timeline((Change("access-h2", at_s=1.0, rate_bps=5e6), Change("access-h1", at_s=1.0, loss=0.1))))
    assert {link.name: link.bottleneck for link in found.links} == {"bottleneck": True, "access-h1": False, "access-h2": True}


def test_where_there_is_no_limit_at_some_time_the_heaviest_network_has_none():
    found = directions(heaviest(NETWORK, Timeline((Change("bottleneck", "forward", at_s=2.0, rate_bps="unlimited"),))))
    assert found["bottleneck:s1->s2"].spec.rate_bps is None
    assert found["bottleneck:s2->s1"].spec.rate_bps == 10e6


@pytest.mark.parametrize("change", [fastest, heaviest, nearest, watched])
def test_without_conditions_it_is_the_network_itself(change):
    assert change(NETWORK, Timeline()) == NETWORK
