"""Decide what every switch is told and when: at first, after a link went down or up, for a pinned path, and when a switch comes back.

Knows nothing of os-ken: switches are reached over a `Wire`, and what happens is reported as the process's messages. All calls must come
from one thread.

A switch that connects gets all its rules at once. Whatever changes later is an *update*, which loses no frame on links that are up:

1. New rules are told from the targets backwards: those at the last switches first, and the next ones only when all switches have
   acknowledged these. So a frame that meets a new rule finds new rules all the way, and one that met an old rule still finds the old ones.
2. With the rules at the first switches the new paths are in force, and that is reported.
3. The old rules are deleted when no frame is under way any more that needs them.

One update is told at a time. What is asked for meanwhile is done together by the next one, which leads to the newest paths of all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Protocol

from controller.flows import Flow, flow
from controller.installation import Change, Table, Wire
from controller.job import ControllerJob, SwitchWiring
from controller.linkstates import LinkStates
from controller.reporting import Report
from controller.routing import AnswerArp, Path, Paths, RoutingError, Rule, check_pin, compute_paths, longest_crossing_s, rules

CACHE_S = 0.5  # how far what a switch does may lag behind the rules it has acknowledged: Open vSwitch's cached flows follow later


@dataclass(frozen=True)
class Port:
    """A port as its switch describes it."""

    number: int
    up: bool


class Later(Protocol):
    """The clock."""

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        """Make a call after a while, from the one thread."""
        ...


@dataclass
class _Switch:
    wiring: SwitchWiring
    table: Table = field(default_factory=Table)
    wire: Wire | None = None  # None: not connected
    ports: dict[str, int] = field(default_factory=dict)  # neighbour -> number
    groups_found: frozenset[int] | None = None  # None: not known since it connected
    told: bool = False  # whether it has been sent its rules since it connected
    obeys: bool = False  # whether it has acknowledged them


@dataclass
class _Pending:
    """Something told: which switches have yet to acknowledge it, and what to do then."""

    waiting: dict[str, int]
    done: Callable[[], None]
    joining: str | None = None  # the switch for whose sake alone it is


@dataclass
class _Update:
    """New paths on their way into force."""

    paths: Paths
    wanted: dict[str, list[Flow]]  # by switch: all it is to hold
    steps: list[dict[str, list[Flow]]]  # by switch: what is still to be told, the next step last
    done: list[Callable[[], None]]


class Conductor:
    """The switches of one network, and the rules they are to obey."""

    def __init__(self, job: ControllerJob, report: Report, later: Later) -> None:
        """Route the network, so that nothing but sending is left to do when the switches come."""
        self._network = job.network
        self._policy = job.routing
        self._hosts = job.hosts
        self._report = report
        self._later = later
        self._switches = {name: _Switch(wiring) for name, wiring in job.switches.items()}
        self._links = LinkStates(job.network)
        self._pending: list[_Pending] = []
        self._is_open = False  # whether all switches have told their ports: before that, nobody knows which links are up
        self._is_installed = False
        self._paths: Paths = {}  # the newest
        self._rules: dict[str, list[Rule]] = {}
        self._route()
        self._in_force = self._paths
        self._update: _Update | None = None  # the one under way
        self._updates = 0  # how many have come into force
        self._asked: list[Callable[[], None]] = []  # what to call when the next one is in force
        self._began = time.monotonic()

    def joined(self, name: str, wire: Wire, ports: Mapping[str, Port]) -> None:
        """Take in a switch that has connected, and its ports by interface; its groups are still to be found."""
        self.left(name)
        switch = self._switches[name]
        switch.wire = wire
        changed = [self._set_port(name, interface, ports.get(interface)) for interface in switch.wiring.ports.values()]
        if self._is_open:
            for link in changed:
                self._follow(link, time.monotonic())

    def groups_found(self, name: str, groups: Iterable[int]) -> None:
        """Take in which groups a switch holds; with that it is known well enough to get its rules."""
        self._switches[name].groups_found = frozenset(groups)
        if self._is_open:
            self._install(name)
        elif all(switch.groups_found is not None for switch in self._switches.values()):
            self._open()

    def left(self, name: str) -> None:
        """Do without a switch that is not connected any more; it keeps forwarding by what it was told."""
        switch = self._switches[name]
        if switch.wire is None:
            return
        if switch.obeys:
            self._report(event="switch_left", switch=name)
        switch.wire, switch.groups_found, switch.told, switch.obeys = None, None, False, False
        if self._update is not None:
            self._update.wanted.pop(name, None)
        self._pending = [change for change in self._pending if change.joining != name]
        for change in self._pending:
            change.waiting.pop(name, None)
        self._finish()

    def port_changed(self, name: str, interface: str, port: Port | None, at: float) -> None:
        """Follow a port that a switch has told a change of, at a time of the monotonic clock; None: it is gone."""
        link = self._set_port(name, interface, port)
        if self._is_open:
            self._follow(link, at)

    def acknowledged(self, name: str, number: int) -> None:
        """Note that a switch has done everything up to the change that was sent by this number."""
        for change in self._pending:
            if change.waiting.get(name) == number:
                del change.waiting[name]
        if not any(name in change.waiting for change in self._pending):
            self._switches[name].table.acknowledge()
        self._finish()

    def pin(self, number: int, path: object) -> None:
        """Send a pair of hosts along a path from now on, both ways; a path that cannot be is answered with the reason."""
        try:
            if not isinstance(path, list) or not all(isinstance(node, str) for node in path):
                raise RoutingError("a path is a list of names")
            check_pin(self._network, tuple(path))
        except RoutingError as error:
            self._report(event="pinned", id=number, path=path, error=str(error), paths=self._all_paths())
            return
        pin = tuple(path)
        others = tuple(other for other in self._policy.pinned if {other[0], other[-1]} != {pin[0], pin[-1]})
        self._policy = replace(self._policy, pinned=(*others, pin))
        self._route()

        def done() -> None:
            self._report(event="pinned", id=number, path=path, error=None, **self._note(pin), paths=self._all_paths())

        self._ask(done)

    def neighbours(self, name: str) -> dict[int, str]:
        """Return what a switch's ports lead to, by their numbers."""
        return {number: neighbour for neighbour, number in self._switches[name].ports.items()}

    def _set_port(self, name: str, interface: str, port: Port | None) -> str | None:
        switch = self._switches[name]
        neighbour = next((node for node, its in switch.wiring.ports.items() if its == interface), None)
        if neighbour is None:  # the bridge's own port
            return None
        switch.ports.pop(neighbour, None)
        if port is not None:
            switch.ports[neighbour] = port.number
        return self._links.set_port(name, neighbour, port is not None and port.up)

    def _open(self) -> None:
        self._is_open = True
        for link in sorted(self._links.down):
            self._report(event="link_down", link=link)
        if self._links.down:
            self._route()
        self._in_force = self._paths
        for name in self._switches:
            self._install(name)

    def _install(self, name: str) -> None:
        """Give a switch that has connected all its rules, and let it forget everything else that is ours."""
        switch = self._switches[name]
        assert switch.wire is not None and switch.groups_found is not None
        switch.table.doubt(switch.groups_found)
        number = switch.wire.tell(switch.table.change_to(one for _, one in self._flows(name)), takes_over=True)
        switch.told = True
        self._pending.append(_Pending({name: number}, lambda: self._obeys(name), joining=name))

    def _obeys(self, name: str) -> None:
        self._switches[name].obeys = True
        if self._is_installed:
            self._report(event="switch_joined", switch=name)
        elif all(switch.obeys for switch in self._switches.values()):
            self._is_installed = True
            self._report(
                event="installed",
                seconds=time.monotonic() - self._began,
                rules=sum(map(len, self._rules.values())),
                switches=len(self._switches),
                down=sorted(self._links.down),
                paths=self._all_paths(),
            )

    def _follow(self, link: str | None, at: float) -> None:
        """Route anew if a link went down or up."""
        if link is None:
            return
        self._report(event="link_down" if link in self._links.down else "link_up", link=link)
        before = self._paths
        self._route()
        hosts = list(combinations(self._network.all_hosts, 2))
        pairs = sum(before.get(pair) != self._paths.get(pair) for pair in hosts)

        def done() -> None:
            unreachable = [pair for pair in hosts if pair not in self._in_force]
            seconds = time.monotonic() - at
            self._report(event="rerouted", link=link, pairs=pairs, unreachable=unreachable, seconds=seconds, paths=self._all_paths())

        self._ask(done)

    def _note(self, pin: Path) -> dict[str, str]:
        """Say why an accepted pin is not in force, if it is not."""
        if down := self._links.down_along(pin):
            why = f"{' and '.join(down)} {'is' if len(down) == 1 else 'are'} down"
        elif self._in_force.get((pin[0], pin[-1])) == pin:
            return {}
        elif pin in self._policy.pinned:
            why = "a link of it has only just come up"
        else:
            why = "the pair has been pinned anew"
        return {"note": f"accepted, but not in force: {why}"}

    def _ask(self, done: Callable[[], None]) -> None:
        """Have the newest paths put in force, and call back when they are."""
        self._asked.append(done)
        if self._update is None:
            self._begin()

    def _begin(self) -> None:
        wanted: dict[str, list[Flow]] = {}
        steps: dict[int, dict[str, list[Flow]]] = defaultdict(lambda: defaultdict(list))
        for name, switch in self._switches.items():
            if switch.told:
                flows = self._flows(name)
                wanted[name] = [one for _, one in flows]
                switch.table.prepare(wanted[name])
                for distance, one in flows:
                    steps[distance][name].append(one)
        self._update = _Update(self._paths, wanted, [steps[distance] for distance in sorted(steps, reverse=True)], self._asked)
        self._asked = []
        self._step(self._update)

    def _step(self, update: _Update) -> None:
        """Tell the next new rules of an update, and go on when they are acknowledged."""
        while update.steps:
            step = update.steps.pop()
            if waiting := self._tell({name: self._switches[name].table.add(step[name]) for name in update.wanted if name in step}):
                self._pending.append(_Pending(waiting, lambda: self._step(update)))
                return
        self._updates += 1
        number, before = self._updates, self._in_force
        self._in_force, self._update = update.paths, None
        retired = [self._switches[name].table.retire(flows, number) for name, flows in update.wanted.items()]
        if any(retired):
            self._later(longest_crossing_s(self._network, before.values()) + CACHE_S, lambda: self._sweep(number))
        for done in update.done:
            done()
        if self._asked:
            self._begin()

    def _sweep(self, update: int) -> None:
        """Delete what was retired by an update or earlier."""
        waiting = self._tell({name: switch.table.sweep(update) for name, switch in self._switches.items() if switch.told})
        self._pending.append(_Pending(waiting, lambda: None))

    def _tell(self, changes: Mapping[str, Change]) -> dict[str, int]:
        """Send the changes that are any; return by which numbers they will be acknowledged."""
        wires = {name: self._switches[name].wire for name, change in changes.items() if change}
        return {name: wire.tell(changes[name], takes_over=False) for name, wire in wires.items() if wire is not None}

    def _route(self) -> None:
        self._paths = compute_paths(self._network, self._policy, self._links.down)
        self._rules = {name: [] for name in self._switches}
        for rule in rules(self._network, self._paths, self._policy, self._links.down):
            self._rules[rule.switch].append(rule)

    def _flows(self, name: str) -> list[tuple[int, Flow]]:
        """Return what a switch is to hold by the newest paths, each with its distance from the target."""
        ports = self._switches[name].ports
        return [(0 if isinstance(rule, AnswerArp) else rule.distance, flow(rule, ports, self._hosts)) for rule in self._rules[name]]

    def _finish(self) -> None:
        finished = [change for change in self._pending if not change.waiting]
        self._pending = [change for change in self._pending if change.waiting]
        for change in finished:
            change.done()

    def _all_paths(self) -> list[list[str]]:
        """Return the paths that are in force: what is reported last must be the latest."""
        return [list(path) for path in self._in_force.values()]
