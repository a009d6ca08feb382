"""Routing: the rules are followed hop by hop, as switches would, on networks of any shape."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, replace
from itertools import combinations, pairwise, permutations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_following import SPEC, journeys, networks

from controller.routing import AnswerArp, Forward, RoutingError, RoutingPolicy, check_pin, compute_paths, longest_crossing_s, rules
from topologies import LinkSpec, dumbbell, leafspine, star

SHORTEST, ECMP, GROUPS = (RoutingPolicy(kind) for kind in ("shortest", "ecmp", "groups"))
FABRIC = leafspine(8, 4, 4, SPEC, SPEC)


policies = st.builds(RoutingPolicy, kind=st.sampled_from(["shortest", "ecmp", "groups"]), seed=st.integers(0, 5))


@st.composite
def routed(draw):
    network = draw(networks())
    down = frozenset(draw(st.sets(st.sampled_from([link.name for link in network.links]), max_size=3)))
    return network, draw(policies), down


def links_of(network, path):
    return {network.graph.edges[ends]["link"].name for ends in pairwise(path)}


def unharmed(network, down):
    return replace(network, links=tuple(link for link in network.links if link.name not in down))


def hops(network, source, target):
    """Return the length of the shortest path that leads through no other host, worked out by networkx; None if there is none."""
    graph = network.graph.subgraph({source, target, *network.switches})
    return nx.shortest_path_length(graph, source, target) if nx.has_path(graph, source, target) else None


def spines(paths, pairs):
    return Counter(paths[pair][2] for pair in pairs if len(paths[pair]) == 5)


def ring(network):
    hosts = network.hosts
    return [(host, hosts[(i + 1) % len(hosts)]) for i, host in enumerate(hosts)]


@given(routed())
def test_every_pair_that_can_be_joined_gets_a_shortest_path(drawn):
    network, policy, down = drawn
    paths = compute_paths(network, policy, down)
    left = unharmed(network, down)
    for source, target in permutations(network.hosts, 2):
        length = hops(left, source, target)
        path = paths.get((source, target))
        assert (path is None) == (length is None)
        if path:
            check_pin(left, path)
            assert len(path) == length + 1
            assert (path[0], path[-1]) == (source, target)


@given(routed())
def test_both_directions_use_the_same_links(drawn):
    paths = compute_paths(*drawn)
    assert all(paths[b, a] == path[::-1] for (a, b), path in paths.items())


@given(routed())
def test_frames_that_follow_the_rules_take_their_path_and_no_other(drawn):
    network, policy, down = drawn
    paths = compute_paths(network, policy, down)
    table = rules(network, paths, policy, down)
    for pair in permutations(network.hosts, 2):
        for entry in network.graph[pair[0]]:
            (journey,) = journeys(network, table, *pair, entry)
            path = paths.get(pair, ())
            assert journey == path if path[1:2] == (entry,) else journey == (pair[0], entry)  # elsewhere nothing takes it on


@given(routed())
def test_every_rule_lies_on_the_path_of_its_pair(drawn):
    network, policy, down = drawn
    paths = compute_paths(network, policy, down)
    explicit = [rule for rule in rules(network, paths, policy, down) if isinstance(rule, Forward) and not rule.tcp_only]
    steps = Counter((rule.source, rule.target, rule.came_from, rule.switch, *rule.next_hops) for rule in explicit)
    assert steps == Counter((*pair, *path[i : i + 3]) for pair, path in paths.items() for i in range(len(path) - 2))


@given(routed())
def test_tcp_over_groups_arrives_whatever_the_groups_choose_and_never_goes_in_circles(drawn):
    network, _, down = drawn
    left = unharmed(network, down)
    paths = compute_paths(network, GROUPS, down)
    table = rules(network, paths, GROUPS, down)
    for source, target in paths:
        path = paths[source, target]
        taken = list(journeys(left, table, source, target, path[1], tcp=True))
        assert path in taken
        assert {(journey[-1], len(journey)) for journey in taken} == {(target, len(path))}


@pytest.mark.parametrize("policy", [SHORTEST, ECMP])
def test_only_groups_have_rules_for_tcp(policy):
    table = rules(FABRIC, compute_paths(FABRIC, policy), policy)
    assert not any(rule.tcp_only or len(rule.next_hops) > 1 for rule in table if isinstance(rule, Forward))


def test_a_leafs_group_for_a_host_elsewhere_holds_every_spine_that_still_reaches_it():
    down = frozenset({"fabric-l4-p3"})
    table = rules(FABRIC, compute_paths(FABRIC, GROUPS, down), GROUPS, down)
    (rule,) = [rule for rule in table if isinstance(rule, Forward) and rule.tcp_only and (rule.switch, rule.target) == ("l1", "h8")]
    assert rule.next_hops == ("p1", "p2", "p4") and rule.source is None and rule.came_from is None


def test_every_switch_with_hosts_answers_for_every_host_and_no_other_switch_does():
    answers = [rule for rule in rules(FABRIC, compute_paths(FABRIC, ECMP), ECMP) if isinstance(rule, AnswerArp)]
    assert Counter((rule.switch, rule.host) for rule in answers) == Counter((f"l{i}", host) for i in range(1, 5) for host in FABRIC.hosts)


@given(routed())
def test_the_same_seed_gives_the_same_rules_in_the_same_order(drawn):
    network, policy, down = drawn
    paths = compute_paths(network, policy, down)
    assert compute_paths(network, policy, down) == paths
    assert rules(network, dict(reversed(paths.items())), policy, down) == rules(network, paths, policy, down)


def test_a_seed_means_the_same_paths_on_every_machine():
    network = leafspine(6, 6, 4, SPEC, SPEC)
    paths = compute_paths(network, ECMP)
    assert " ".join(paths[pair][2] for pair in combinations(network.hosts, 2)) == "p2 p1 p4 p2 p3 p4 p3 p1 p2 p1 p4 p2 p3 p4 p1"


def test_other_seeds_give_other_paths_except_to_the_shortest():
    seeds = range(10)
    assert len({tuple(compute_paths(FABRIC, RoutingPolicy("ecmp", seed)).values()) for seed in seeds}) == len(seeds)
    assert len({tuple(compute_paths(FABRIC, RoutingPolicy("shortest", seed)).values()) for seed in seeds}) == 1


def test_the_shortest_path_is_the_first_by_name():
    assert set(spines(compute_paths(FABRIC, SHORTEST), permutations(FABRIC.hosts, 2))) == {"p1"}


@pytest.mark.parametrize("network", [star(4, SPEC), dumbbell(5, SPEC, SPEC)])
def test_where_there_is_one_path_every_policy_takes_it(network):
    assert compute_paths(network, SHORTEST) == compute_paths(network, ECMP) == compute_paths(network, GROUPS)


@pytest.mark.parametrize("policy", [SHORTEST, ECMP, GROUPS], ids=lambda policy: policy.kind)
def test_hosts_for_traffic_have_paths_and_the_workers_keep_theirs(policy):
    with_traffic = leafspine(8, 4, 4, SPEC, SPEC, traffic_hosts=3)
    paths = compute_paths(with_traffic, policy)
    assert set(paths) == set(permutations(with_traffic.all_hosts, 2))
    assert {pair: paths[pair] for pair in permutations(FABRIC.hosts, 2)} == compute_paths(FABRIC, policy)
    made = rules(with_traffic, paths, policy)
    assert {rule.host for rule in made if isinstance(rule, AnswerArp)} == set(with_traffic.all_hosts)
    reached = {(rule.source, rule.target) for rule in made if isinstance(rule, Forward)}
    assert ("t1", "h1") in reached and ("h1", "t1") in reached
    if policy is GROUPS:
        assert (None, "t3") in reached


def test_a_host_for_traffic_may_be_pinned():
    network = leafspine(4, 2, 2, SPEC, SPEC, traffic_hosts=2)
    pin = ("t2", "l2", "p2", "l1", "h1")
    paths = compute_paths(network, RoutingPolicy("shortest", pinned=(pin,)))
    assert paths["t2", "h1"] == pin
    assert paths["h1", "t2"] == pin[::-1]


@settings(max_examples=40)
@given(st.integers(2, 20), st.integers(2, 6), st.integers(1, 5), st.integers(0, 3))
def test_spines_carry_equally_many_ring_pairs_and_equally_many_of_all_pairs(workers, leaves, spine_count, seed):
    network = leafspine(workers, leaves, spine_count, SPEC, SPEC)
    paths = compute_paths(network, RoutingPolicy("ecmp", seed))
    for pairs in ({tuple(sorted(pair)) for pair in ring(network)}, set(combinations(network.hosts, 2))):
        carried = spines(paths, pairs)
        loads = [carried[spine] for spine in network.switches[leaves:]]
        assert max(loads) - min(loads) == (1 if sum(loads) % spine_count else 0)


def test_64_hosts_on_20_switches_load_4_spines_exactly_evenly_and_quickly():
    network = leafspine(64, 16, 4, SPEC, SPEC)
    began = time.process_time()
    paths = compute_paths(network, ECMP)
    routed_s = time.process_time() - began
    table = rules(network, paths, ECMP)
    assert time.process_time() - began < 1.0 and routed_s < 0.5
    assert set(spines(paths, ring(network)).values()) == {4}
    assert set(spines(paths, combinations(network.hosts, 2)).values()) == {480}
    assert len(table) == 16 * 64 + sum(len(path) - 2 for path in paths.values())


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_in_the_ring_share_no_fabric_link_where_there_are_enough(seed):
    network = leafspine(4, 4, 2, SPEC, SPEC)
    paths = compute_paths(network, RoutingPolicy("ecmp", seed))
    assert set(Counter(link for pair in ring(network) for link in links_of(network, paths[pair][1:-1])).values()) == {1}


@given(networks(), policies, st.data())
def test_a_link_that_goes_moves_only_the_pairs_that_crossed_it_and_gives_them_back(network, policy, data):
    link = data.draw(st.sampled_from(network.links)).name
    before = compute_paths(network, policy)
    during = compute_paths(network, policy, frozenset({link}))
    for pair, path in before.items():
        if link not in links_of(network, path):
            assert during[pair] == path
    assert during.keys() <= before.keys()
    assert compute_paths(network, policy, frozenset()) == before


def test_pairs_that_lose_their_spine_are_spread_over_the_others():
    down = frozenset({"fabric-l1-p1"})
    before, during = compute_paths(FABRIC, ECMP), compute_paths(FABRIC, ECMP, down)
    moved = [pair for pair in combinations(FABRIC.hosts, 2) if during[pair] != before[pair]]
    assert moved and all("p1" in before[pair] and "p1" not in during[pair] for pair in moved)
    carried = spines(during, combinations(FABRIC.hosts, 2))
    others = [carried[spine] for spine in ("p2", "p3", "p4")]
    assert max(others) - min(others) <= 1


@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_lose_their_spine_avoid_one_that_is_crowded_by_pins(seed):
    crowd = tuple((f"h{a}", f"l{(a + 1) // 2}", "p2", f"l{(b + 1) // 2}", f"h{b}") for a in (3, 4) for b in (5, 6, 7, 8))
    policy = RoutingPolicy("ecmp", seed, crowd)
    before, during = compute_paths(FABRIC, policy), compute_paths(FABRIC, policy, frozenset({"fabric-l1-p1"}))
    moved = [pair for pair in before if during[pair] != before[pair]]
    assert moved and {during[pair][2] for pair in moved} <= {"p3", "p4"}


def test_a_host_whose_link_is_down_is_in_no_path():
    paths = compute_paths(FABRIC, ECMP, frozenset({"access-h1"}))
    assert set(paths) == set(permutations(FABRIC.hosts[1:], 2))


DETOUR = ("h1", "l1", "p2", "l2", "p3", "l4", "h8")


@pytest.mark.parametrize("kind", ["shortest", "ecmp", "groups"])
@pytest.mark.parametrize("pin", [DETOUR, DETOUR[::-1]])
def test_a_pin_holds_for_both_directions_and_moves_nobody_else(kind, pin):
    policy = RoutingPolicy(kind, pinned=(pin,))
    paths = compute_paths(FABRIC, policy)
    assert paths["h1", "h8"] == DETOUR and paths["h8", "h1"] == DETOUR[::-1]
    unpinned = compute_paths(FABRIC, RoutingPolicy(kind))
    assert {pair for pair in paths if paths[pair] != unpinned[pair]} == {("h1", "h8"), ("h8", "h1")}


@pytest.mark.parametrize("tcp", [False, True])
def test_frames_of_a_pinned_pair_keep_to_the_pin_even_beside_groups(tcp):
    policy = RoutingPolicy("groups", pinned=(DETOUR,))
    table = rules(FABRIC, compute_paths(FABRIC, policy), policy)
    assert list(journeys(FABRIC, table, "h8", "h1", "l4", tcp)) == [DETOUR[::-1]]
    assert len(list(journeys(FABRIC, table, "h7", "h1", "l4", tcp))) == (4 if tcp else 1)


def test_distances_fall_by_one_along_every_path_and_with_every_choice_of_a_group():
    network = leafspine(4, leaves=2, spines=2, fabric=LinkSpec(10e6), access=LinkSpec(10e6))
    policy = RoutingPolicy("groups", pinned=(("h1", "l1", "p1", "l2", "h3"),))
    table = [rule for rule in rules(network, compute_paths(network, policy), policy) if isinstance(rule, Forward)]
    distances = {(rule.switch, rule.source, rule.target): rule.distance for rule in table}
    for rule in table:
        for next_hop in rule.next_hops:
            assert rule.distance == (0 if next_hop == rule.target else distances[next_hop, rule.source, rule.target] + 1)


def test_the_longest_crossing_counts_delay_jitter_and_a_full_queue_of_every_link():
    spec = LinkSpec(8e6, delay_s=0.01, jitter_s=0.002, queue_bytes=3000)  # 3 ms
    network = leafspine(4, leaves=2, spines=2, fabric=spec, access=LinkSpec(None, delay_s=0.001))
    assert longest_crossing_s(network, [("h1", "l1", "h2"), ("h1", "l1", "p1", "l2", "h3")]) == pytest.approx(2 * 0.015 + 2 * 0.001)
    assert longest_crossing_s(network, []) == 0


def test_the_later_pin_of_a_pair_counts():
    later = ("h8", "l4", "p1", "l1", "h1")
    assert compute_paths(FABRIC, RoutingPolicy(pinned=(DETOUR, later)))["h1", "h8"] == later[::-1]


@pytest.mark.parametrize("link", ["fabric-l1-p2", "fabric-l2-p2", "fabric-l2-p3", "fabric-l4-p3"])
@pytest.mark.parametrize("seed", range(4))
def test_a_pin_over_a_link_that_is_down_gives_way_to_the_path_its_pair_would_have(link, seed):
    unpinned, down = RoutingPolicy("groups", seed), frozenset({link})
    pinned = replace(unpinned, pinned=(DETOUR,))
    paths = compute_paths(FABRIC, pinned, down)
    assert paths == compute_paths(FABRIC, unpinned, down)
    assert rules(FABRIC, paths, pinned, down) == rules(FABRIC, paths, unpinned, down)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ((), "names two hosts"),
        (("h1",), "names two hosts"),
        (("h1", "l1", "p9", "l4", "h8"), "names p9, which this network does not have"),
        (("h1", "l1", "p1", "l4"), "l4 is a switch"),
        (("p1", "l4", "h8"), "p1 is a switch"),
        (("h1", "l1", "p1", "l2", "p1", "l4", "h8"), "visits p1 2 times"),
        (("h1", "l1", "h1"), "visits h1 2 times"),
        (("h1", "l1", "h2", "l1", "h3"), "visits l1 2 times"),
        (("h1", "l1", "l4", "h8"), "from l1 to l4, but no link"),
        (("h1", "l1", "h2", "l4", "h8"), "through h2"),
    ],
)
def test_a_pin_that_is_no_path_is_refused_with_a_sentence(path, sentence):
    with pytest.raises(RoutingError, match=sentence):
        check_pin(FABRIC, path)
    with pytest.raises(RoutingError, match=sentence):
        compute_paths(FABRIC, RoutingPolicy(pinned=(path,)))


def test_a_policy_survives_json():
    policy = RoutingPolicy("groups", 7, (DETOUR,))
    assert RoutingPolicy.from_json(json.loads(json.dumps(asdict(policy)))) == policy
