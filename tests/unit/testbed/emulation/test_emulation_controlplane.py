"""The controller as the emulation sees it: told the network, listened to, replaced when it dies; a process that is only played here."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from controller.job import ControllerJob, HostAddress, SwitchWiring
from controller.routing import RoutingPolicy
from testbed.emulation import controlplane
from testbed.emulation.child import ChildEnded
from testbed.emulation.controlplane import MOST_RESTARTS, ControlPlane
from topologies import LinkSpec, leafspine

NETWORK = leafspine(2, 2, 2, LinkSpec(1e7, queue_bytes=100_000), LinkSpec(1e8, queue_bytes=100_000))
PORTS = {
    "l1": {"p1": "l1-eth1", "p2": "l1-eth2", "h1": "l1-eth3"},
    "l2": {"p1": "l2-eth1", "p2": "l2-eth2", "h2": "l2-eth3"},
    "p1": {"l1": "p1-eth1", "l2": "p1-eth2"},
    "p2": {"l1": "p2-eth1", "l2": "p2-eth2"},
}
HOSTS = {"h1": {"mac": "02:00:00:00:00:01", "ip": "10.0.0.1"}, "h2": {"mac": "02:00:00:00:00:02", "ip": "10.0.0.2"}}
BY_P1, BY_P2 = ["h1", "l1", "p1", "l2", "h2"], ["h1", "l1", "p2", "l2", "h2"]
INSTALLED = {"event": "installed", "seconds": 0.1, "rules": 8, "switches": 4, "paths": [BY_P1, BY_P1[::-1]]}


class Controller:
    """A controller that says what a test lets it say."""

    def __init__(self, stage, module, log):
        self.stage, self.module, self.log = stage, module, log
        self.pid = 1000 + len(stage.controllers)
        self.lines = object()
        self.told = []
        self.said = []  # one list for each time that it is heard
        self.ended = False

    def kill(self):
        self.ended = True

    def tell(self, message, timeout_s=20.0):
        if self.ended or self.stage.next_ends:
            self.stage.next_ends, self.ended = False, True
            raise ChildEnded("controller ended with code 1")
        self.told.append(json.loads(json.dumps(message)))
        self.stage.happened.append(f"told a {next(iter(message))}")

    def hear(self, timeout_s):
        assert timeout_s == 0
        if self.ended and not self.said:
            raise ChildEnded("controller ended with code 1")
        return self.said.pop(0) if self.said else []

    def wait_for(self, event, timeout_s):
        assert timeout_s == controlplane.INSTALL_TIMEOUT_S
        self.stage.happened.append(f"waited until {event}")
        self.stage.now_s += 7.0 if event == "listening" else 2.0
        return {"listening": {"event": "listening"}, "installed": INSTALLED}[event]


class Stage:
    """The controllers that were started, the commands that were run, and the time."""

    def __init__(self):
        self.controllers = []
        self.happened = []
        self.now_s = 50.0
        self.next_ends = False  # whoever is told something next

    def start(self, module, log):
        self.controllers.append(Controller(self, module, log))
        return self.controllers[-1]

    def run(self, *command):
        self.happened.append(" ".join(command))


@pytest.fixture
def stage(monkeypatch):
    stage = Stage()
    monkeypatch.setattr(controlplane, "Child", stage.start)
    monkeypatch.setattr(controlplane, "tool", stage.run)
    monkeypatch.setattr(controlplane, "time", SimpleNamespace(monotonic=lambda: stage.now_s))
    return stage


@pytest.fixture
def make(stage, tmp_path):
    """Make the control plane of a network."""

    def make(*pinned):
        control = ControlPlane(tmp_path / "controller.log")
        control.take_charge(NETWORK, RoutingPolicy("shortest", 3, pinned), PORTS, HOSTS, tmp_path / "board.bin")
        return control

    return make


@pytest.fixture
def control(make):
    return make()


def lose(stage):
    stage.controllers[-1].ended = True


def pins_told_to_the_next(stage, control):
    """Lose the controller; return the pins in its successor's job."""
    lose(stage)
    control.poll()
    return stage.controllers[-1].told[0]["job"]["routing"]["pinned"]


def test_the_process_starts_before_there_is_a_network(stage, tmp_path):
    control = ControlPlane(tmp_path / "controller.log")
    (controller,) = stage.controllers
    assert (controller.module, controller.log, controller.told) == ("controller", tmp_path / "controller.log", [])
    assert (control.pid, control.lines, control.paths) == (controller.pid, controller.lines, [])


def test_the_controller_is_told_all_of_the_network_by_a_job_that_it_can_read(stage, control, tmp_path):
    (message,) = stage.controllers[0].told
    assert ControllerJob.from_json(message["job"]) == ControllerJob(
        network=NETWORK,
        routing=RoutingPolicy("shortest", 3),
        switches={name: SwitchWiring(number, PORTS[name]) for number, name in enumerate(("l1", "l2", "p1", "p2"), 1)},
        hosts={name: HostAddress(**address) for name, address in HOSTS.items()},
        listen_port=6653,
        generation=0,
        board=str(tmp_path / "board.bin"),
    )


def test_switches_are_pointed_at_a_controller_that_listens_and_made_patient_when_it_has_their_connections(stage, control):
    pointed = [
        f"set-controller {name} tcp:127.0.0.1:6653 -- set controller {name} connection-mode=out-of-band"
        for name in ("l1", "l2", "p1", "p2")
    ]
    patient = [f"set controller {name} max_backoff=1000 inactivity_probe=30000" for name in ("l1", "l2", "p1", "p2")]
    assert stage.happened == [
        "told a job",
        "waited until listening",
        "ovs-vsctl " + " -- ".join(pointed),
        "ovs-appctl -t ovs-vswitchd version",
        "waited until installed",
        "ovs-vsctl " + " -- ".join(patient),
    ]


def test_installed_paths_are_noted_and_installing_is_timed_from_when_switches_may_connect(control):
    assert control.paths == [BY_P1, BY_P1[::-1]]
    assert control.installation_s == 2.0


def test_whatever_was_said_since_the_last_time_is_returned_once_and_paths_follow(stage, control):
    down, rerouted = {"event": "link_down", "link": "fabric-l1-p1"}, {"event": "rerouted", "paths": [BY_P2]}
    stage.controllers[0].said = [[down], [rerouted, {"event": "link_up", "link": "fabric-l1-p1"}]]
    assert [message["event"] for message in control.poll()] == ["link_down", "rerouted", "link_up"]
    assert control.paths == [BY_P2]
    assert control.poll() == []
    assert control.paths == [BY_P2]
    assert len(stage.controllers) == 1


def test_a_lost_controller_is_replaced_by_the_next_generation_and_that_is_told_after_its_last_words(stage, control):
    first = stage.controllers[0]
    first.said = [[{"event": "error", "text": "no room"}]]
    lose(stage)
    assert control.poll() == [
        {"event": "error", "text": "no room"},
        {"event": "controller_lost", "text": "controller ended with code 1", "generation": 1},
    ]
    _, second = stage.controllers
    assert (second.module, second.log) == ("controller", first.log)
    (job,) = (message["job"] for message in second.told)
    assert job == {**first.told[0]["job"], "generation": 1}
    assert (control.pid, control.lines) == (second.pid, second.lines)
    assert control.paths == [BY_P1, BY_P1[::-1]]  # switches keep their rules


def test_the_successor_is_listened_to_and_switches_need_not_be_told_of_it(stage, control):
    commands = [words for words in stage.happened if words.startswith("ovs")]
    lose(stage)
    control.poll()
    stage.controllers[1].said = [[{**INSTALLED, "paths": [BY_P2]}]]
    assert [message["event"] for message in control.poll()] == ["installed"]
    assert control.paths == [BY_P2]
    assert [words for words in stage.happened if words.startswith("ovs")] == commands


def test_a_controller_that_is_lost_again_and_again_is_a_fault(stage, control):
    for generation in range(1, MOST_RESTARTS + 1):
        lose(stage)
        (message,) = control.poll()
        assert message["generation"] == generation
    lose(stage)
    with pytest.raises(RuntimeError, match=rf"^the controller ended {MOST_RESTARTS + 1} times: see controller\.log$"):
        control.poll()
    assert len(stage.controllers) == MOST_RESTARTS + 1


def test_a_pin_is_asked_for_by_its_number_and_its_answer_comes_as_a_message(stage, control):
    control.pin(7, BY_P2)
    assert stage.controllers[0].told[1:] == [{"pin": {"id": 7, "path": BY_P2}}]
    assert control.poll() == []
    answer = {"event": "pinned", "id": 7, "error": None, "paths": [BY_P2]}
    stage.controllers[0].said = [[answer]]
    assert control.poll() == [answer]
    assert control.paths == [BY_P2]


def test_the_next_generation_knows_the_pins_that_were_granted_and_no_others(stage, control):
    control.pin(1, BY_P2)
    control.pin(2, ["h1", "h2"])
    control.pin(3, BY_P1)  # not answered any more
    granted = {"event": "pinned", "id": 1, "error": None, "paths": []}
    stage.controllers[0].said = [[granted, {"event": "pinned", "id": 2, "error": "no link joins them", "paths": []}]]
    control.poll()
    assert pins_told_to_the_next(stage, control) == [BY_P2]
    assert pins_told_to_the_next(stage, control) == [BY_P2]


def test_a_pin_replaces_an_earlier_one_of_its_pair_in_either_direction_and_no_other(stage, make):
    other = ("h1", "l1", "h3")  # of another pair
    control = make(tuple(BY_P1), other)
    for number, path in enumerate((BY_P2, BY_P1[::-1]), 1):
        control.pin(number, path)
        stage.controllers[-1].said = [[{"event": "pinned", "id": number, "error": None, "paths": []}]]
        control.poll()
    assert pins_told_to_the_next(stage, control) == [list(other), BY_P1[::-1]]


def test_a_pin_while_the_controller_is_gone_is_answered_as_unavailable_once_and_forgotten(stage, control):
    lose(stage)
    control.pin(4, BY_P2)
    unavailable, lost = control.poll()
    assert unavailable == {"event": "pinned", "id": 4, "error": "the controller does not answer just now", "unavailable": True}
    assert lost["event"] == "controller_lost"
    assert control.paths == [BY_P1, BY_P1[::-1]]
    assert control.poll() == []
    assert stage.controllers[1].told[0]["job"]["routing"]["pinned"] == []
    assert pins_told_to_the_next(stage, control) == []


def test_after_that_a_pin_is_asked_of_the_successor(stage, control):
    lose(stage)
    control.poll()
    control.pin(5, BY_P2)
    assert stage.controllers[1].told[1:] == [{"pin": {"id": 5, "path": BY_P2}}]
    assert control.poll() == []


def test_a_pin_that_was_granted_with_the_controllers_last_words_is_known_to_the_successor(stage, control):
    control.pin(1, BY_P2)
    stage.controllers[0].said = [[{"event": "pinned", "id": 1, "error": None, "paths": []}]]
    assert pins_told_to_the_next(stage, control) == [BY_P2]


def test_signs_of_life_are_not_passed_on_and_a_controller_without_any_is_replaced(stage, control):
    for _ in range(5):
        stage.controllers[0].said = [[{"event": "alive"}]]
        assert control.poll() == []
        stage.now_s += controlplane.SILENT_S - 1
    stage.now_s += 2
    (lost,) = control.poll()
    assert lost == {"event": "controller_lost", "text": "the controller said nothing for 10 s and was killed", "generation": 1}
    assert control.pid == stage.controllers[1].pid
    stage.now_s += 1000  # the successor's time is counted from when somebody listens
    assert control.poll() == []


def test_no_more_than_some_pins_wait_for_an_answer(stage, control):
    for number in range(10):
        control.pin(number, BY_P2)
    assert [message["id"] for message in control.poll() if message.get("unavailable")] == [8, 9]
    assert len(stage.controllers[0].told) == 1 + 8


def test_a_successor_that_is_lost_while_it_is_told_its_job_is_replaced_too(stage, control):
    lose(stage)
    stage.next_ends = True
    assert [message["generation"] for message in control.poll()] == [1, 2]
    assert stage.controllers[2].told[0]["job"]["generation"] == 2
