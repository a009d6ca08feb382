"""Networks of any shape, and switches that follow rules to the letter."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from controller.routing import Forward
from topologies import Link, LinkSpec, Network

SPEC = LinkSpec(10e6)


@st.composite
def networks(draw):
    """Draw switches joined at random, perhaps in several parts, and hosts on any of them, now and then on two."""
    switches = tuple(f"s{i + 1}" for i in range(draw(st.integers(1, 6))))
    hosts = tuple(f"h{i + 1}" for i in range(draw(st.integers(1, 6))))
    joined = draw(st.sets(st.sampled_from(list(combinations(switches, 2))))) if len(switches) > 1 else set()
    homes = [draw(st.lists(st.sampled_from(switches), min_size=1, max_size=2, unique=True)) for _ in hosts]
    ends = sorted(joined) + [(host, home) for host, attached in zip(hosts, homes, strict=True) for home in attached]
    return Network(hosts, switches, tuple(Link(f"{a}-{b}", a, b, SPEC, SPEC) for a, b in ends))


def decision(table, switch, source, target, came_from, tcp):
    """Return the rule that a switch applies to a frame; two rules of one priority that both match would be ambiguous."""
    matching = [
        rule
        for rule in table
        if isinstance(rule, Forward)
        and (rule.switch, rule.target) == (switch, target)
        and rule.source in (None, source)
        and rule.came_from in (None, came_from)
        and (tcp or not rule.tcp_only)
    ]
    if not matching:
        return None
    first = max(rule.priority for rule in matching)
    (rule,) = [rule for rule in matching if rule.priority == first]
    return rule


def journeys(network, table, source, target, entry, tcp=False):
    """Follow a frame that enters at a switch, on every choice of a select group; yield the nodes it visits to where it ends."""
    waiting = [(source, entry)]
    while waiting:
        path = waiting.pop()
        assert len(path) <= len(network.switches) + 2, "a loop"
        rule = decision(table, path[-1], source, target, path[-2], tcp) if path[-1] in network.switches else None
        if rule is None:
            yield path
            continue
        for next_hop in rule.next_hops:
            assert network.graph.has_edge(path[-1], next_hop)
            waiting.append((*path, next_hop))
