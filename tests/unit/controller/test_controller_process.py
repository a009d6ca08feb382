"""The controller as a process: what it says, when it ends, and that switches on sockets are well served; no root, no Open vSwitch."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from control_jobs import job, two_spines
from openflow_switch import OpenFlowSwitch

from controller.board import Board, QueueInfo

ROOT = Path(__file__).parents[3]
PATIENCE_S = 30
DELETE_STRICT = 4  # OpenFlow's command


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """`python -m controller`, and the switches that connect to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "controller"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self.switches: dict[str, OpenFlowSwitch] = {}
        self.job = job(two_spines(), listen_port=free_port())

    def tell(self, message: dict) -> None:
        self.process.stdin.write(json.dumps(message) + "\n")

    def start(self, **changes) -> None:
        self.job = job(two_spines(), listen_port=self.job.listen_port, **changes)
        self.tell({"job": asdict(self.job)})

    def connect(self, *names: str) -> None:
        for name in names or self.job.switches:
            wiring = self.job.switches[name]
            self.switches[name] = OpenFlowSwitch(self.job.listen_port, wiring.dpid, wiring.ports.values())

    def hear(self) -> dict | None:
        """Return the next message that is not its heartbeat; None at the end."""
        while (message := self.hear_anything()) == {"event": "alive"}:
            pass
        return message

    def hear_anything(self) -> dict | None:
        assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], "the controller says nothing"
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def hear_error(self) -> str:
        message = self.hear()
        assert message["event"] == "error"
        assert self.hear() is None
        assert self.process.wait(PATIENCE_S) == 1
        return message["text"]

    def install(self, **changes) -> dict:
        self.start(**changes)
        assert self.hear() == {"event": "listening"}
        self.connect()
        message = self.hear()
        assert message["event"] == "installed"
        return message

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        for switch in self.switches.values():
            switch.close()


@pytest.fixture
def controller():
    process = Process()
    yield process
    process.close()


def test_it_installs_reroutes_pins_and_takes_back_a_switch(controller):
    installed = controller.install()
    flow_mods = sum(len(switch.flow_mods) for switch in controller.switches.values())
    assert installed["rules"] == flow_mods > 0
    assert installed["switches"] == 4 and len(installed["paths"]) == 12
    assert installed["seconds"] < PATIENCE_S

    interface = controller.job.switches["p1"].ports["l1"]
    for up, event in ((False, "link_down"), (True, "link_up")):
        controller.switches["p1"].set_port(interface, up)
        assert controller.hear() == {"event": event, "link": "fabric-l1-p1"}
        rerouted = controller.hear()
        assert (rerouted["event"], rerouted["link"], rerouted["unreachable"]) == ("rerouted", "fabric-l1-p1", [])
        assert rerouted["pairs"] > 0 and rerouted["seconds"] < 1
    assert rerouted["paths"] == installed["paths"]

    pin = ["h1", "l1", "p2", "l2", "h3"]
    controller.tell({"pin": {"id": 7, "path": pin}})
    pinned = controller.hear()
    assert (pinned["event"], pinned["id"], pinned["error"]) == ("pinned", 7, None)
    assert pin in pinned["paths"] and pin[::-1] in pinned["paths"]
    controller.tell({"pin": {"id": 8, "path": ["h1", "h3"]}})
    refused = controller.hear()
    assert refused["id"] == 8 and "no link joins them" in refused["error"]
    assert refused["paths"] == pinned["paths"]

    began = time.monotonic()
    controller.switches["l2"].close()
    assert controller.hear() == {"event": "switch_left", "switch": "l2"}
    assert time.monotonic() - began < 1
    controller.connect("l2")
    assert controller.hear() == {"event": "switch_joined", "switch": "l2"}
    assert len(controller.switches["l2"].flow_mods) > 0

    controller.process.stdin.close()
    assert controller.hear() is None
    assert controller.process.wait(PATIENCE_S) == 0


def test_it_says_once_a_second_that_it_is_alive_even_before_a_switch_comes_and_without_a_board(controller):
    controller.start(board=None)
    assert controller.hear_anything() == {"event": "listening"}
    assert controller.hear_anything() == {"event": "alive"}
    began = time.monotonic()
    assert [controller.hear_anything() for _ in range(2)] == [{"event": "alive"}] * 2
    assert 1.5 < time.monotonic() - began < 4


def test_what_is_not_wanted_any_more_is_deleted_a_moment_after_the_new_paths_are_in_force(controller):
    installed = controller.install()
    spine = next(path[2] for path in installed["paths"] if (path[0], path[-1]) == ("h1", "h3"))
    other = {"p1": "p2", "p2": "p1"}[spine]
    controller.tell({"pin": {"id": 1, "path": ["h1", "l1", other, "l2", "h3"]}})
    began = time.monotonic()
    assert controller.hear()["event"] == "pinned"
    deletions = 0
    while deletions < 2:  # one rule of each direction
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.02)
        deletions = sum(message[25] == DELETE_STRICT for message in controller.switches[spine].flow_mods)
    assert time.monotonic() - began > 0.4


def test_a_successor_deletes_by_the_cookies_of_its_predecessors(controller):
    controller.install(generation=2)
    for switch in controller.switches.values():
        assert [message[16:24] == b"\xff" * 8 for message in switch.flow_mods[-3:]] == [False, True, True]


def test_counters_are_put_on_the_board(controller, tmp_path):
    path = tmp_path / "board.bin"
    board = Board.create(path, [QueueInfo("fabric-l1-p1:l1->p1", "fabric-l1-p1", "l1", "p1", "", 100_000, 0.0, True)], [1e7])
    controller.start(board=str(path))
    assert controller.hear() == {"event": "listening"}
    controller.connect()
    assert controller.hear()["event"] == "installed"
    controller.switches["l1"].counters = 4321
    deadline = time.monotonic() + PATIENCE_S
    while (reading := board.read(0).openflow) is None or reading.queue_tx_bytes == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert reading.port_tx_bytes == reading.queue_tx_bytes == 4321
    assert 0 <= time.monotonic() - reading.mono_s < PATIENCE_S


def test_it_listens_on_the_loopback_only(controller):
    controller.start()
    assert controller.hear() == {"event": "listening"}
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert [address for address in listening if address.endswith(f":{controller.job.listen_port:04X}")] == [
        f"0100007F:{controller.job.listen_port:04X}"
    ]


def test_what_a_switch_refuses_is_a_fault(controller):
    controller.install()
    controller.switches["l1"].complain(5, 1)
    assert controller.hear_error() == "RuntimeError: l1 refused a message: OFPET_FLOW_MOD_FAILED(5), OFPFMFC_TABLE_FULL(1)"


def test_a_switch_of_another_network_is_a_fault(controller):
    controller.start()
    assert controller.hear() == {"event": "listening"}
    controller.switches["stranger"] = OpenFlowSwitch(controller.job.listen_port, 0x77, ["x-eth1"])
    assert "0x77" in controller.hear_error()


def test_a_port_that_is_taken_is_a_fault(controller):
    with socket.create_server(("127.0.0.1", controller.job.listen_port)):
        controller.start()
        assert "Address already in use" in controller.hear_error()


@pytest.mark.parametrize("line", ['{"job": {}}', "{}", "nonsense", '{"job": {"network": 3}}'])
def test_a_job_that_makes_no_sense_is_a_fault(controller, line):
    controller.process.stdin.write(line + "\n")
    controller.hear_error()


def test_without_a_job_it_just_ends(controller):
    controller.process.stdin.close()
    assert controller.hear() is None
    assert controller.process.wait(PATIENCE_S) == 0
