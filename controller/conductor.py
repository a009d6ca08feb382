"""Decide what every switch is told and when: at first, after a link went down or up, for a pinned path, and when a switch comes back.

Knows nothing of os-ken: switches are reached over a `Wire`, and what happens is reported as the process's messages. All calls must come
from one thread. Several changes may be under way at once: a switch obeys in order, and each change waits for its own acknowledgements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Protocol

from controller.flows import Flow, flow
from controller.installation import Change, Table
from controller.job import ControllerJob, SwitchWiring
from controller.linkstates import LinkStates
from controller.routing import Paths, RoutingError, Rule, check_pin, compute_paths, rules


@dataclass(frozen=True)
class Port:
    """A port as its switch describes it."""

    number: int
    up: bool


class Wire(Protocol):
    """The way to one switch."""

    def tell(self, change: Change, takes_over: bool) -> int:
        """Send a change; return the number by which the switch will acknowledge it."""
        ...


class Report(Protocol):
    """Where messages go."""

    def __call__(self, *, event: str, **message: object) -> None:
        """Send one."""
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
    """A change under way: which switches have yet to acknowledge it, and what to do then."""

    waiting: dict[str, int]
    done: Callable[[], None]
    joining: str | None = None  # the switch for whose sake alone it is


class Conductor:
    """The switches of one network, and the rules they are to obey."""

    def __init__(self, job: ControllerJob, report: Report) -> None:
        """Route the network, so that nothing but sending is left to do when the switches come."""
        self._network = job.network
        self._policy = job.routing
        self._hosts = job.hosts
        self._report = report
        self._switches = {name: _Switch(wiring) for name, wiring in job.switches.items()}
        self._links = LinkStates(job.network)
        self._pending: list[_Pending] = []
        self._is_open = False  # whether all switches have told their ports: before that, nobody knows which links are up
        self._is_installed = False
        self._paths: Paths = {}
        self._rules: dict[str, list[Rule]] = {}
        self._route()
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
            self._report(event="pinned", id=number, error=str(error), paths=self._all_paths())
            return
        others = tuple(pin for pin in self._policy.pinned if {pin[0], pin[-1]} != {path[0], path[-1]})
        self._policy = replace(self._policy, pinned=(*others, tuple(path)))
        self._route()
        self._tell(lambda: self._report(event="pinned", id=number, error=None, paths=self._all_paths()))

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
        for name in self._switches:
            self._install(name)

    def _install(self, name: str) -> None:
        """Give a switch that has connected all its rules, and let it forget everything else that is ours."""
        switch = self._switches[name]
        assert switch.wire is not None and switch.groups_found is not None
        switch.table.doubt(switch.groups_found)
        number = switch.wire.tell(switch.table.change_to(self._flows(name)), takes_over=True)
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
                paths=self._all_paths(),
            )

    def _follow(self, link: str | None, at: float) -> None:
        """Route anew if a link went down or up."""
        if link is None:
            return
        self._report(event="link_down" if link in self._links.down else "link_up", link=link)
        before = self._paths
        self._route()
        hosts = list(combinations(self._network.hosts, 2))
        pairs = sum(before.get(pair) != self._paths.get(pair) for pair in hosts)

        def done() -> None:
            unreachable = [pair for pair in hosts if pair not in self._paths]
            seconds = time.monotonic() - at
            self._report(event="rerouted", link=link, pairs=pairs, unreachable=unreachable, seconds=seconds, paths=self._all_paths())

        self._tell(done)

    def _tell(self, done: Callable[[], None]) -> None:
        """Tell every switch what is different for it now, and call back when all have done it."""
        waiting = {}
        for name, switch in self._switches.items():
            if switch.wire is not None and switch.told and (change := switch.table.change_to(self._flows(name))):
                waiting[name] = switch.wire.tell(change, takes_over=False)
        self._pending.append(_Pending(waiting, done))
        self._finish()

    def _route(self) -> None:
        self._paths = compute_paths(self._network, self._policy, self._links.down)
        self._rules = {name: [] for name in self._switches}
        for rule in rules(self._network, self._paths, self._policy, self._links.down):
            self._rules[rule.switch].append(rule)

    def _flows(self, name: str) -> list[Flow]:
        return [flow(rule, self._switches[name].ports, self._hosts) for rule in self._rules[name]]

    def _finish(self) -> None:
        finished = [change for change in self._pending if not change.waiting]
        self._pending = [change for change in self._pending if change.waiting]
        for change in finished:
            change.done()

    def _all_paths(self) -> list[list[str]]:
        """Return the paths of this moment: what is reported last must be the latest."""
        return [list(path) for path in self._paths.values()]
