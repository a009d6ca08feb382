"""Read the conditions of an experiment, and tell at once everything that is wrong with each and between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Any

import networkx as nx
from pydantic import ValidationError

from testbed import units
from testbed.spec.background import Background
from testbed.spec.condition_fields import Surroundings
from testbed.spec.conditions import Mahimahi, Ramp, Redraw, Span, Step, Trace, Walk
from testbed.spec.errors import dotted, keys, problems
from testbed.spec.fields import Faults, Model, Place
from topologies import Network

Condition = Step | Ramp | Redraw | Walk | Trace | Mahimahi | Background
KINDS: dict[str, type[Model]] = {
    "ramp": Ramp,
    "redraw": Redraw,
    "walk": Walk,
    "trace": Trace,
    "mahimahi": Mahimahi,
    "background": Background,
}


def read(raw: object, around: Surroundings, network: Network | None) -> object:
    """Return the conditions that a list describes; Faults with the place of each below it. What is no list is returned as it is."""
    if not isinstance(raw, list | tuple):
        return raw
    faults: list[tuple[Place, str]] = []
    found: dict[int, Any] = {}
    for i, entry in enumerate(raw):
        model, fault = _kind(entry)
        if fault:
            faults.append(((i,), fault))
            continue
        try:
            found[i] = model.model_validate(entry, context={"surroundings": around})
        except ValidationError as error:
            faults += [((i, *place), message) for place, message in problems(error, model)]
    faults += _overlaps(found)
    if network is not None:
        faults += _jitter_beyond_delay(found, network)
        faults += _never_up_again(found, network)
    if faults:
        raise Faults(faults)
    return tuple(found.values())


def _kind(entry: object) -> tuple[type[Model], str | None]:
    """Tell by its keys which kind of condition an entry is, or why it is none."""
    given: Sequence[str] = list(map(str, entry)) if isinstance(entry, dict) else []
    named = [key for key in given if key in KINDS]
    if len(named) > 1:
        return Step, f"is both {' and '.join(named)}: make it {len(named)} conditions"
    if named:
        return KINDS[named[0]], None
    if {"from", "until", "every"} & set(given):
        strange = [key for key in given if key not in {*keys(Ramp), *keys(Step)}]
        near = [match for key in strange for match in get_close_matches(key, KINDS, n=1)]
        hint = f"did you mean '{near[0]}'?" if near else f"add one of {', '.join(key for key in KINDS if key != 'background')}"
        return Step, f"says from when on, but not what happens then; {hint}, or write at: for a single change"
    return Step, None


def _overlaps(conditions: dict[int, Condition]) -> Iterator[tuple[Place, str]]:
    """Yield what two conditions would both go on changing at the same time."""
    spans = [(i, one) for i, one in conditions.items() if isinstance(one, Span)]
    for (i, first), (j, second) in combinations(spans, 2):
        both = first.least().keys() & second.least().keys()
        meet = first.from_s < second.end_s and second.from_s < first.end_s
        if both and meet and first.link == second.link and first.directions & second.directions:
            names = " and ".join(sorted(name.split("_")[0] for name in both))
            yield (j,), f"the {names} of {second.link} would be changed by {dotted(('conditions', i))} at the same time"


def _never_up_again(conditions: dict[int, Condition], network: Network) -> Iterator[tuple[Place, str]]:
    """Yield where a link that nothing can go around is taken down for good: the step that should bring it up would never begin."""
    bridges = {frozenset(ends) for ends in nx.bridges(network.graph)}
    only = {link.name for link in network.links if frozenset((link.a, link.b)) in bridges}
    steps = [(i, one) for i, one in conditions.items() if isinstance(one, Step) and one.state is not None and one.link in only]
    last_up_s = {one.link: one.at_s for _, one in sorted(steps, key=lambda entry: entry[1].at_s or 0.0) if one.state == "up"}
    for i, one in steps:
        up_s = last_up_s.get(one.link)
        if one.state == "down" and (up_s is None or up_s < (one.at_s or 0.0)):
            told = f"nothing can go around {one.link}, so the workers would wait for ever"
            yield (i,), f"{told}; bring it up again at a later time: {{at: ..., link: {one.link}, state: up}}"


def _jitter_beyond_delay(conditions: dict[int, Condition], network: Network) -> Iterator[tuple[Place, str]]:
    """Yield the conditions under which a link's jitter would exceed its delay, as far as their times are known."""
    changes: list[tuple[float, int, Step | Span, float | None, float | None]] = []  # the last two: delay, jitter
    for i, one in conditions.items():
        if isinstance(one, Step) and one.at_s is not None and not (one.delay_s is None and one.jitter_s is None):
            changes.append((one.at_s, i, one, one.delay_s, one.jitter_s))
        elif isinstance(one, Span) and "delay_s" in one.least():
            changes.append((one.from_s, i, one, one.least()["delay_s"], None))
            if isinstance(one, Ramp) and one.ramp.delay_s is not None:
                changes.append((one.end_s, i, one, one.ramp.delay_s[1], None))
    delays_s: dict[tuple[str, str], float] = {}
    jitters_s: dict[tuple[str, str], float] = {}
    for link in network.links:
        for side, spec in (("forward", link.forward), ("backward", link.backward)):
            delays_s[link.name, side], jitters_s[link.name, side] = spec.delay_s, spec.jitter_s
    for _, i, change, delay_s, jitter_s in sorted(changes, key=lambda entry: entry[:2]):
        ways = [(change.link, side) for side in sorted(change.directions)]
        delays_s.update(dict.fromkeys(ways, delay_s) if delay_s is not None else {})
        jitters_s.update(dict.fromkeys(ways, jitter_s) if jitter_s is not None else {})
        for way in [way for way in ways if jitters_s[way] > delays_s[way]][:1]:
            jitter, delay = units.format_time(jitters_s[way]), units.format_time(delays_s[way])
            yield (i,), f"{change.link} would have a jitter of {jitter} around a delay of {delay}; jitter must not exceed the delay"
