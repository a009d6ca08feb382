"""What background traffic can ask of the switches, beside the workers."""

from __future__ import annotations

import pytest

from testbed.background_load import background_load_bps
from testbed.spec.condition_fields import Surroundings
from testbed.spec.condition_list import read
from topologies import LinkSpec, dumbbell, star

NETWORK = dumbbell(4, LinkSpec(10e6), LinkSpec(100e6), traffic_hosts=3)  # h1, h2, t1 and t3 on the left


def load(*traffic, network=NETWORK):
    conditions = [{"at": "1s", **({"for": one.pop("for")} if "for" in one else {}), "background": one} for one in traffic]
    return background_load_bps(read(conditions, Surroundings(), network), network)


def udp(source, target, rate="3mbit", **more):
    return {"from": source, "to": target, "protocol": "udp", "rate": rate, **more}


def tcp(source, target, **more):
    return {"from": source, "to": target, **more}


def test_without_background_traffic_nothing_is_asked():
    assert load() == 0
    step = {"at": "1s", "link": "bottleneck", "rate": "1mbit"}
    assert background_load_bps(read([step], Surroundings(), NETWORK), NETWORK) == 0


@pytest.mark.parametrize(
    ("traffic", "asked_bps"),
    [
        (udp("t1", "t2"), 2 * 3e6),  # two switches on the way
        (udp("t1", "t3"), 3e6),
        (udp("t1", "t2", flows=4), 2 * 12e6),
        (udp("t1", "t2", rate="1gbit"), 2 * 100e6),  # its own uplink lets no more through
        (tcp("t1", "t2"), 0),  # on the bottleneck it takes from the workers
        (tcp("t1", "h2"), 0),
        (tcp("t1", "t3"), 100e6),  # meets no worker
    ],
)
def test_a_flow_asks_its_pace_of_every_switch_on_its_way(traffic, asked_bps):
    assert load(traffic) == pytest.approx(asked_bps)


def test_on_a_star_a_flow_between_hosts_for_traffic_is_as_fast_as_their_links():
    assert load(tcp("t1", "t2"), network=star(2, LinkSpec(20e6), traffic_hosts=2)) == pytest.approx(20e6)


def test_flows_add_up_while_they_go_on_together():
    assert load(udp("t1", "t2"), udp("t3", "t2")) == pytest.approx(4 * 3e6)
    one_after_another = udp("t1", "t2", pattern={"flows": [1, 3, 2], "each": "5s", "pause": "1s"})
    assert load(one_after_another) == pytest.approx(3 * 2 * 3e6)
