"""Routing in an experiment file: which paths a network gets, the same for every scheme, and which pins cannot be."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from controller.routing import RoutingPolicy
from testbed.spec import load, resolved, variants
from testbed.sweep import expand

GOOD = """\
name: fabric
topology:
  kind: leafspine
  workers: 4
  leaves: 2
  spines: 3
  fabric: {rate: 20mbit}
  access: {rate: 100mbit}
workload: {kind: replay, model: vgg16, compute: 60ms, budget: {steps: 5}}
schemes: [none, fp16]
"""
PIN = ("h1", "l1", "p3", "l2", "h4")


@pytest.fixture
def experiment(write):
    """Make the experiment with this text after it."""
    return lambda more="": load(write(GOOD + more))


@pytest.fixture
def faults(problems):
    """Return the lines of the error that this text after the experiment makes."""
    return lambda more: problems(GOOD + more)


def spines(network):
    """Return which spines the pairs of different leaves cross, in the order of the routes."""
    return [route[2] for route in network.routes if len(route) == 5]


def test_paths_are_spread_unless_told_otherwise(experiment):
    assert experiment().routing.policy(7) == RoutingPolicy("ecmp", 7, ())
    routed = experiment(f"routing: {{kind: groups, pinned: [[{', '.join(PIN)}]]}}\n")
    assert routed.routing.policy(3) == RoutingPolicy("groups", 3, (PIN,))


def test_the_paths_of_tcp_by_select_groups_are_not_known_before_it_takes_them(experiment):
    one = experiment("routing: {kind: groups}\n")
    assert one.network(1) == one.topology.network()


@pytest.mark.parametrize("kind", ["shortest", "ecmp"])
def test_every_pair_has_a_route_over_links_that_there_are(experiment, kind):
    one = experiment(f"routing: {{kind: {kind}}}\n")
    network = one.network(1)
    assert [(route[0], route[-1]) for route in network.routes] == list(permutations(("h1", "h2", "h3", "h4"), 2))
    for route in network.routes:
        assert [(direction.source, direction.target) for direction in network.path(route[0], route[-1])] == list(pairwise(route))
    assert network.with_routes([]) == one.topology.network()


def test_both_directions_of_a_pair_use_the_same_links(experiment):
    routes = experiment().network(1).routes
    assert {route[::-1] for route in routes} == set(routes)


def test_the_seed_and_nothing_else_chooses_among_equal_paths(experiment):
    made = {experiment().network(seed).routes for seed in range(8)}
    assert len(made) > 1
    for seed in range(8):
        assert experiment().network(seed) == experiment().network(seed)


def test_shortest_puts_all_pairs_on_one_spine_whatever_the_seed_and_ecmp_spreads_them(experiment):
    for seed in range(4):
        assert set(spines(experiment("routing: {kind: shortest}\n").network(seed))) == {"p1"}
        assert set(spines(experiment().network(seed))) == {"p1", "p2", "p3"}


def test_a_pin_is_taken_both_ways_and_changes_no_other_pair(experiment):
    def unpinned(network):
        return {route for route in network.routes if {route[0], route[-1]} != {"h1", "h4"}}

    plain = experiment("routing: {kind: shortest}\n").network(1)
    pinned = experiment(f"routing: {{kind: shortest, pinned: [[{', '.join(PIN)}]]}}\n").network(1)
    assert PIN not in plain.routes
    assert {PIN, PIN[::-1]} <= set(pinned.routes)
    assert unpinned(pinned) == unpinned(plain)


def test_every_scheme_of_a_repeat_has_the_same_network_and_the_next_repeat_another_seed(experiment):
    runs = expand(experiment("repeats: 2\nseed: 3\n"))
    assert [(run.scheme.slug, run.repeat) for run in runs] == [("none", 1), ("fp16", 1), ("fp16", 2), ("none", 2)]
    networks = [run.experiment.network(run.seed) for run in runs]
    assert networks[0] == networks[1] == experiment().network(3)
    assert networks[2] == networks[3] == experiment().network(4)


def test_the_manifest_tells_the_routing(experiment):
    assert resolved(experiment())["routing"] == {"kind": "ecmp", "pinned": []}
    assert resolved(experiment(f"routing: {{pinned: [[{', '.join(PIN)}]]}}\n"))["routing"]["pinned"] == [list(PIN)]


def test_the_kind_of_routing_may_be_swept(experiment):
    swept = experiment("sweep: {routing.kind: [shortest, ecmp, groups]}\n")
    assert [variant.routing.kind for _, variant in variants(swept)] == ["shortest", "ecmp", "groups"]
    assert len(set(spines(next(variants(swept))[1].network(1)))) == 1
    assert [run.slug for run in expand(swept)][::2] == ["none_kind-shortest", "none_kind-ecmp", "none_kind-groups"]


def test_a_sweep_of_the_kind_keeps_the_pins(experiment):
    swept = experiment(f"routing: {{pinned: [[{', '.join(PIN)}]]}}\nsweep: {{routing.kind: [shortest, ecmp]}}\n")
    assert [variant.routing.pinned for _, variant in variants(swept)] == [(PIN,), (PIN,)]


def test_pins_may_be_swept(experiment):
    swept = experiment(f"sweep: {{routing.pinned: [[], [[{', '.join(PIN)}]]]}}\n")
    assert [variant.routing.pinned for _, variant in variants(swept)] == [(), (PIN,)]


# Each row: what stands after GOOD, and all lines of the error.
BAD = [
    ("routing: {kind: shortst}", ["11: routing.kind: 'shortst' is not possible; did you mean 'shortest'?"]),
    ("routing: {kind: ospf}", ["11: routing.kind: 'ospf' is not possible; choose one of shortest, ecmp, groups"]),
    ("routing: ecmp", ["11: routing: must be a mapping of `key: value`, not 'ecmp'"]),
    ("routing: {pins: []}", ["11: routing.pins: unknown key; did you mean 'pinned'?"]),
    ("routing: {pinned: h1}", ["11: routing.pinned: must be a list, not 'h1'"]),
    ("routing: {pinned: [h1]}", ["11: routing.pinned[0]: must be a list, not 'h1'"]),
    ("routing: {pinned: [[h1, 1, h3]]}", ["11: routing.pinned[0][1]: must be text, not 1; put it in quotes"]),
    ("routing: {pinned: [[h1]]}", ["11: routing.pinned[0]: a path names two hosts and the switches between them; this one names 1"]),
    ("routing: {pinned: [[h1, l9, h2]]}", ["11: routing.pinned[0]: the path names l9, which this network does not have"]),
    ("routing: {pinned: [[h1, l1, p1]]}", ["11: routing.pinned[0]: a path leads from one host to another, and p1 is a switch"]),
    ("routing: {pinned: [[h1, l1, h1]]}", ["11: routing.pinned[0]: the path visits h1 2 times; visit each node once"]),
    ("routing: {pinned: [[h1, p1, h3]]}", ["11: routing.pinned[0]: the path goes from h1 to p1, but no link joins them"]),
    (
        "routing: {pinned: [[h1, l1, h2, l1, h3]]}",
        ["11: routing.pinned[0]: the path visits l1 2 times; visit each node once"],
    ),
    (
        "routing: {pinned: [[h1, h2, h3]]}",
        ["11: routing.pinned[0]: the path leads through h2, but hosts do not forward; name only switches between the ends"],
    ),
    (
        "routing:\n  pinned:\n  - [h1, l1, h2]\n  - [h1, l1, l2, h3]\n  - [h1]",
        [
            "14: routing.pinned[1]: the path goes from l1 to l2, but no link joins them",
            "15: routing.pinned[2]: a path names two hosts and the switches between them; this one names 1",
        ],
    ),
    ("sweep: {routing.kind: [ecmp, groop]}", ["11: sweep.routing.kind[1]: 'groop' is not possible; did you mean 'groups'?"]),
    ("sweep: {routing.kind: [ecmp, ecmp]}", ["11: sweep.routing.kind[1]: makes the same runs as 'ecmp' in the same list"]),
    ("sweep: {routing.knd: [ecmp]}", ["11: sweep.routing.knd: unknown field; did you mean 'routing.kind'?"]),
]


@pytest.mark.parametrize(("more", "expected"), BAD, ids=[row[1][0].split(": ", 1)[1][:70] for row in BAD])
def test_each_mistake_is_told_with_its_line_and_remedy(faults, more, expected):
    assert faults(more + "\n") == [f"e.yaml:{line}" for line in expected]


def test_a_pin_that_only_one_cell_has_no_link_for_names_the_cell(faults):
    more = f"routing: {{pinned: [[{', '.join(PIN)}]]}}\nsweep: {{topology.spines: [3, 2]}}\n"
    assert faults(more) == [
        "e.yaml:11: routing.pinned[0]: the path names p3, which this network does not have (in the cell topology.spines: 2)"
    ]
