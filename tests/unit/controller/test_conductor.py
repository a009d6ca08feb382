"""What every switch is told, and when: decided without a network, followed here by switches that do what they are told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations

import pytest
from control_jobs import job, two_spines

from controller.conductor import Conductor, Port
from controller.flows import Flow, Group, Match, Output
from controller.routing import RoutingPolicy


class FakeSwitch:
    """Numbered ports, a table that obeys at once, and acknowledgements that wait until they are asked for."""

    def __init__(self, name: str, interfaces) -> None:
        self.name = name
        self.ports = {interface: Port(number + 1, up=True) for number, interface in enumerate(interfaces)}
        self.flows: dict[Match, Flow] = {}
        self.groups: set[int] = set()
        self.told = 0
        self.took_over: list[bool] = []

    def tell(self, change, takes_over: bool) -> int:
        self.flows |= {flow.match: flow for flow in change.flows}
        for match in change.obsolete_flows:
            self.flows.pop(match, None)
        self.groups = (self.groups | {group.number for group in change.new_groups}) - set(change.obsolete_groups)
        self.took_over.append(takes_over)
        self.told += 1
        return self.told


class Stage:
    """A conductor with its switches, and what it reported."""

    def __init__(self, routing: RoutingPolicy | None = None) -> None:
        self.network = two_spines()
        self.job = job(self.network, routing)
        self.reports: list[dict] = []
        self.put_off: list[tuple[float, Callable[[], None]]] = []
        self.conductor = Conductor(
            self.job, lambda **message: self.reports.append(message), lambda seconds, call: self.put_off.append((seconds, call))
        )
        self.switches = {name: FakeSwitch(name, wiring.ports.values()) for name, wiring in self.job.switches.items()}

    def join(self, *names: str) -> None:
        for name in names or self.switches:
            switch = self.switches[name]
            self.conductor.joined(name, switch, switch.ports)
            self.conductor.groups_found(name, switch.groups)

    def acknowledge(self, *names: str) -> None:
        """Acknowledge everything, and what is told because of that."""
        told: dict[str, int] = {}
        while told != (told := {name: self.switches[name].told for name in names or self.switches}):
            self.acknowledge_once(*names)

    def acknowledge_once(self, *names: str) -> None:
        told = {name: self.switches[name].told for name in names or self.switches}
        for name, count in told.items():
            for number in range(count + 1):
                self.conductor.acknowledged(name, number)

    def let_time_pass(self) -> None:
        """Let every frame arrive that is under way, so that old rules are deleted."""
        while self.put_off:
            self.put_off.pop(0)[1]()
            self.acknowledge()

    def set_port(self, switch: str, neighbour: str, up: bool) -> None:
        interface = self.job.switches[switch].ports[neighbour]
        self.switches[switch].ports[interface] = Port(self.switches[switch].ports[interface].number, up)
        self.conductor.port_changed(switch, interface, self.switches[switch].ports[interface], at=0.0)

    def events(self) -> list[str]:
        return [message["event"] for message in self.reports]

    def last(self, event: str) -> dict:
        return [message for message in self.reports if message["event"] == event][-1]

    def walk(self, source: str, target: str) -> list[str] | None:
        """Follow a frame that is not TCP through the switches' tables; None: it is dropped."""
        hosts = self.job.hosts
        (node,) = self.network.graph[source]
        path = [source]
        while node != target:
            wiring = self.job.switches[node]
            numbers = {neighbour: self.switches[node].ports[interface].number for neighbour, interface in wiring.ports.items()}
            fields = {"in_port": numbers[path[-1]], "eth_src": hosts[source].mac, "eth_dst": hosts[target].mac}
            found = [flow for match, flow in self.switches[node].flows.items() if match == Match(match.priority, **fields)]
            if not found:
                return None
            output = max(found, key=lambda flow: flow.match.priority).action
            assert isinstance(output, Output)
            path.append(node)
            node = next(neighbour for neighbour, number in numbers.items() if number == output.port)
        return [*path, node]

    def walks(self) -> list[list[str]]:
        return [path for pair in permutations(self.network.hosts, 2) if (path := self.walk(*pair))]


@pytest.fixture
def stage():
    return Stage()


@pytest.fixture
def installed(stage):
    stage.join()
    stage.acknowledge()
    stage.reports.clear()
    return stage


def a_spine(stage: Stage) -> str:
    """Return the spine that h1 and h3 use."""
    return stage.walk("h1", "h3")[2]


def test_nothing_is_told_before_all_switches_have_described_themselves(stage):
    stage.join("l1", "l2", "p1")
    assert not any(switch.told for switch in stage.switches.values())
    stage.join("p2")
    assert all(switch.told == 1 and switch.took_over == [True] for switch in stage.switches.values())


def test_installed_is_reported_once_when_every_switch_has_acknowledged(stage):
    stage.join()
    stage.acknowledge("l1", "l2", "p1")
    assert stage.reports == []
    stage.acknowledge()
    assert stage.events() == ["installed"]
    report = stage.last("installed")
    assert (report["switches"], report["down"]) == (4, [])
    assert report["rules"] == sum(len(switch.flows) for switch in stage.switches.values())
    assert report["seconds"] >= 0


def test_frames_take_the_reported_paths_both_ways(stage):
    stage.join()
    stage.acknowledge()
    assert stage.walks() == stage.last("installed")["paths"]
    assert len(stage.walks()) == 12
    assert all(stage.walk(a, b) == stage.walk(b, a)[::-1] for a, b in combinations(stage.network.hosts, 2))


def test_links_found_down_at_the_start_are_reported_and_not_used(stage):
    interface = stage.job.switches["p1"].ports["l1"]
    stage.switches["p1"].ports[interface] = Port(1, up=False)
    stage.join()
    stage.acknowledge()
    assert stage.events() == ["link_down", "installed"]
    assert stage.last("installed")["down"] == ["fabric-l1-p1"]
    assert {path[2] for path in stage.walks() if len(path) == 5} == {"p2"}


def test_a_port_that_is_not_there_is_a_link_that_is_down(stage):
    del stage.switches["p1"].ports[stage.job.switches["p1"].ports["l1"]]
    stage.join()
    assert stage.last("link_down")["link"] == "fabric-l1-p1"


def test_a_link_that_goes_down_is_routed_around(installed):
    spine = a_spine(installed)
    before = installed.walks()
    installed.set_port("l1", spine, up=False)
    installed.set_port(spine, "l1", up=False)
    assert installed.events() == ["link_down"]
    installed.acknowledge()
    assert installed.events() == ["link_down", "rerouted"]
    report = installed.last("rerouted")
    assert report["link"] == f"fabric-l1-{spine}" and report["unreachable"] == []
    assert report["pairs"] == sum(old != new for old, new in zip(before, installed.walks(), strict=True)) / 2 > 0
    assert installed.walks() == report["paths"]
    assert not any(spine in path for path in installed.walks())


def test_paths_come_back_with_the_link_and_old_rules_are_gone(installed):
    tables = {name: dict(switch.flows) for name, switch in installed.switches.items()}
    before, spine = installed.walks(), a_spine(installed)
    for up in (False, True):
        installed.set_port("l1", spine, up)
        installed.set_port(spine, "l1", up)
        installed.acknowledge()
    installed.let_time_pass()
    assert installed.events() == ["link_down", "rerouted", "link_up", "rerouted"]
    assert installed.walks() == before
    assert {name: switch.flows for name, switch in installed.switches.items()} == tables


def test_only_switches_with_something_to_change_are_told(installed):
    spine = a_spine(installed)
    other = {"p1": "p2", "p2": "p1"}[spine]
    installed.set_port("l1", spine, up=False)
    installed.acknowledge()
    assert {name for name, switch in installed.switches.items() if switch.told > 1} == {"l1", "l2", other}
    installed.let_time_pass()
    assert {name for name, switch in installed.switches.items() if switch.told > 1} == {"l1", "l2", spine, other}
    told = {name: switch.told for name, switch in installed.switches.items()}
    installed.set_port(spine, "l1", up=False)
    assert {name: switch.told for name, switch in installed.switches.items()} == told


def test_what_cannot_be_reached_is_said_and_comes_back(installed):
    installed.set_port("l2", "h3", up=False)
    installed.acknowledge()
    assert installed.last("rerouted")["unreachable"] == [("h1", "h3"), ("h2", "h3"), ("h3", "h4")]
    installed.let_time_pass()
    assert installed.walk("h1", "h3") is None
    installed.set_port("l2", "h3", up=True)
    installed.acknowledge()
    assert installed.last("rerouted")["unreachable"] == []
    assert len(installed.walks()) == 12


def test_changes_that_come_while_one_is_under_way_are_made_after_it_and_none_is_lost(installed):
    installed.set_port("l1", "p1", up=False)
    told = {name: switch.told for name, switch in installed.switches.items()}
    installed.set_port("l2", "p1", up=False)
    installed.conductor.pin(3, ["h1", "l1", "p2", "l2", "h3"])
    assert {name: switch.told for name, switch in installed.switches.items()} == told
    installed.acknowledge()
    assert installed.events()[2:] == ["rerouted", "rerouted", "pinned"]
    assert [len(message["paths"]) for message in installed.reports[2:]] == [12, 12, 12]
    assert installed.events().count("rerouted") == 2
    assert not any("p1" in path for path in installed.walks())
    assert installed.reports[-1]["paths"] == installed.walks()


def test_a_pin_sends_its_pair_both_ways_and_no_other_elsewhere(installed):
    before = {(path[0], path[-1]): path for path in installed.walks()}
    pin = ["h1", "l1", {"p1": "p2", "p2": "p1"}[a_spine(installed)], "l2", "h3"]
    installed.conductor.pin(7, pin)
    installed.acknowledge()
    assert installed.reports == [{"event": "pinned", "id": 7, "path": pin, "error": None, "paths": installed.walks()}]
    after = {(path[0], path[-1]): path for path in installed.walks()}
    assert after == before | {("h1", "h3"): pin, ("h3", "h1"): pin[::-1]}


def test_a_later_pin_of_the_pair_replaces_the_earlier_one(installed):
    for number, spine in enumerate(("p1", "p2", "p1")):
        installed.conductor.pin(number, ["h3", "l2", spine, "l1", "h1"])
        installed.acknowledge()
        assert installed.walk("h1", "h3") == ["h1", "l1", spine, "l2", "h3"]


def test_a_pin_outlives_the_failure_of_its_path(installed):
    installed.conductor.pin(1, ["h1", "l1", "p1", "l2", "h3"])
    installed.set_port("l1", "p1", up=False)
    installed.acknowledge()
    assert installed.walk("h1", "h3")[2] == "p2"
    installed.set_port("l1", "p1", up=True)
    installed.acknowledge()
    assert installed.walk("h1", "h3")[2] == "p1"


def test_a_pin_over_a_link_that_is_down_is_accepted_with_a_note(installed):
    pin = ["h1", "l1", "p1", "l2", "h3"]
    installed.set_port("l1", "p1", up=False)
    installed.acknowledge()
    installed.conductor.pin(1, pin)
    installed.acknowledge()
    answer = installed.reports[-1]
    assert (answer["error"], answer["path"], answer["note"]) == (None, pin, "accepted, but not in force: fabric-l1-p1 is down")
    assert installed.walk("h1", "h3")[2] == "p2"
    installed.set_port("l2", "p1", up=False)
    installed.acknowledge()
    installed.conductor.pin(2, pin)
    installed.acknowledge()
    assert installed.reports[-1]["note"] == "accepted, but not in force: fabric-l1-p1 and fabric-l2-p1 are down"


def test_a_pin_that_was_overtaken_by_another_says_so(installed):
    spine = a_spine(installed)
    other = {"p1": "p2", "p2": "p1"}[spine]
    installed.conductor.pin(0, ["h1", "l1", other, "l2", "h3"])
    installed.conductor.pin(1, ["h1", "l1", spine, "l2", "h3"])
    installed.conductor.pin(2, ["h1", "l1", other, "l2", "h3"])
    installed.acknowledge()
    overtaken = "accepted, but not in force: the pair has been pinned anew"
    assert [message.get("note") for message in installed.reports] == [None, overtaken, None]


def test_a_pin_whose_link_came_up_only_after_its_update_was_begun_says_so(installed):
    spine = a_spine(installed)
    other = {"p1": "p2", "p2": "p1"}[spine]
    installed.conductor.pin(0, ["h1", "l1", other, "l2", "h3"])  # the others wait for this one, and are begun together
    installed.conductor.pin(1, ["h1", "l1", spine, "l2", "h3"])
    installed.set_port("l1", "p1", up=False)
    installed.conductor.pin(2, ["h2", "l1", "p1", "l2", "h4"])
    while "pinned" not in installed.events():
        installed.acknowledge_once()
    installed.set_port("l1", "p1", up=True)
    installed.acknowledge()
    assert installed.last("pinned")["note"] == "accepted, but not in force: a link of it has only just come up"
    assert installed.walk("h2", "h4")[2] == "p1"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (["h1", "l1", "p9", "l2", "h3"], "p9"),
        (["h1", "l1", "l2", "h3"], "no link joins them"),
        ("h1", "a path is a list of names"),
        (["h1", 3], "a path is a list of names"),
        (None, "a path is a list of names"),
    ],
)
def test_a_pin_that_cannot_be_is_answered_with_the_reason_and_changes_nothing(installed, path, why):
    before = installed.walks()
    installed.conductor.pin(8, path)
    (answer,) = installed.reports
    assert (answer["event"], answer["id"], answer["path"], answer["paths"]) == ("pinned", 8, path, before)
    assert why in answer["error"]
    assert all(switch.told == 1 for switch in installed.switches.values())


def test_a_switch_that_leaves_holds_up_nobody_else(installed):
    installed.set_port("l1", a_spine(installed), up=False)
    for name in installed.switches:
        if name != "l2":
            installed.acknowledge(name)
    assert "rerouted" not in installed.events()
    installed.conductor.left("l2")
    installed.acknowledge("l1", "p1", "p2")
    assert installed.events() == ["link_down", "switch_left", "rerouted"]


def test_a_switch_that_comes_back_gets_its_rules_and_loses_stale_ones(installed):
    spine = a_spine(installed)
    installed.conductor.left("l2")
    installed.set_port("l1", spine, up=False)
    installed.acknowledge("l1", "p1", "p2")
    installed.join("l2")
    assert installed.events() == ["switch_left", "link_down", "rerouted"]
    installed.acknowledge("l2")
    assert installed.events()[-1] == "switch_joined"
    assert installed.walks() == installed.last("rerouted")["paths"]
    numbers = {flow.match.in_port for flow in installed.switches["l2"].flows.values()}
    dead = installed.switches["l2"].ports[installed.job.switches["l2"].ports[spine]].number
    assert (dead in numbers) == any(path[2] == spine for path in installed.walks())


def test_a_switch_that_comes_back_with_other_port_numbers_amid_an_update_is_told_only_by_those(installed):
    other = {"p1": "p2", "p2": "p1"}[a_spine(installed)]
    installed.conductor.pin(1, ["h1", "l1", other, "l2", "h3"])
    switch = installed.switches["l1"]
    installed.conductor.left("l1")
    switch.flows.clear()
    switch.ports = {interface: Port(port.number + 20, port.up) for interface, port in switch.ports.items()}
    installed.join("l1")
    installed.acknowledge()
    installed.let_time_pass()
    assert sorted(installed.events()) == ["pinned", "switch_joined", "switch_left"]
    assert installed.walks() == installed.last("pinned")["paths"]
    assert all(flow.match.in_port is None or flow.match.in_port > 20 for flow in switch.flows.values())


def test_a_switch_that_connects_again_before_it_was_missed_has_left_and_joined(installed):
    installed.join("l2")
    installed.acknowledge("l2")
    assert installed.events() == ["switch_left", "switch_joined"]


def test_a_link_that_failed_while_its_switch_was_away_is_found_when_it_is_back(installed):
    spine = a_spine(installed)
    installed.conductor.left(spine)
    interface = installed.job.switches[spine].ports["l1"]
    installed.switches[spine].ports[interface] = Port(installed.switches[spine].ports[interface].number, up=False)
    installed.join(spine)
    installed.acknowledge()
    assert installed.events()[:2] == ["switch_left", "link_down"]
    assert sorted(installed.events()[2:]) == ["rerouted", "switch_joined"]
    assert {path[2] for path in installed.walks() if path[1] == "l1" and len(path) == 5} == {{"p1": "p2", "p2": "p1"}[spine]}


def test_a_port_that_was_made_anew_is_used_by_its_new_number(installed):
    interface = installed.job.switches["l1"].ports["h1"]
    installed.conductor.port_changed("l1", interface, None, at=0.0)
    installed.acknowledge()
    installed.let_time_pass()
    assert installed.walk("h1", "h2") is None
    installed.switches["l1"].ports[interface] = Port(17, up=True)
    installed.conductor.port_changed("l1", interface, Port(17, up=True), at=0.0)
    installed.acknowledge()
    assert len(installed.walks()) == 12
    assert installed.conductor.neighbours("l1")[17] == "h1"


def test_the_bridges_own_port_is_nobodys_link(installed):
    installed.conductor.port_changed("l1", "l1", Port(0xFFFFFFFE, up=False), at=0.0)
    assert installed.reports == []


def test_groups_spread_tcp_and_shrink_with_their_links():
    stage = Stage(RoutingPolicy("groups"))
    stage.join()
    stage.acknowledge()
    spread = [flow.action.ports for flow in stage.switches["l1"].flows.values() if isinstance(flow.action, Group)]
    assert spread and all(len(ports) == 2 for ports in spread)
    assert len(stage.switches["l1"].groups) == 1
    stage.set_port("l1", "p1", up=False)
    stage.acknowledge()
    stage.let_time_pass()
    assert stage.switches["l1"].groups == set()
    assert not any(isinstance(flow.action, Group) for flow in stage.switches["l1"].flows.values())
