"""Background traffic by the clock: what is started, looked at, stopped and told, and when. iperf3 is pretended."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from testbed.emulation import background as module
from testbed.emulation.background import Background
from testbed.emulation.goodput import Interval
from testbed.timeline import BackgroundFlow

ORIGIN_S = 1000.0


class PretendedFlow:
    """A flow that receives 1000 bytes a look while it runs."""

    def __init__(self, flow, port):
        self.name, self.flow, self.port = f"flow to {flow.target}", flow, port
        self.done: list[str] = []
        self.has_ended = False
        self.senders = self.receivers = []
        self.server_began_s = 0.0
        self.client, self.server = SimpleNamespace(pid=2 * port), SimpleNamespace(pid=2 * port + 1)

    def last_words(self):
        return "iperf3: error"

    def __getattr__(self, name):
        return lambda: self.done.append(name)


class PretendedMeter:
    def __init__(self, *ignored):
        self.since_s, self.bytes, self.over = 0.0, 1000, True

    def begin(self, now_s):
        self.since_s = now_s

    def read(self, now_s):
        found, self.since_s = [Interval(self.since_s, now_s, self.bytes, retransmits=0)], now_s
        return found

    def is_over(self, stopped_s):
        return self.over


class Stage:
    """A clock that a test sets, and everything that background traffic does by it."""

    def __init__(self, folder, monkeypatch, *flows):
        self.now_s = ORIGIN_S - 5
        self.folder = folder
        self.held: list[PretendedFlow] = []
        self.meters: list[PretendedMeter] = []
        self.events: list[tuple[str, str, dict]] = []
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(module.time, "sleep", self.sleep)
        monkeypatch.setattr(module, "connected", self.connect)
        monkeypatch.setattr(module, "TcpMeter", self.meter)
        network = SimpleNamespace(mtu=1500, dilation=1.0)
        self.background = Background(network, flows, folder, folder, lambda *event: self.events.append(event))
        self.background.prepare()

    def connect(self, network, flow, port, logs):
        self.held.append(PretendedFlow(flow, port))
        return self.held[-1]

    def meter(self, *ignored):
        self.meters.append(PretendedMeter())
        return self.meters[-1]

    def sleep(self, seconds):
        self.now_s += seconds

    def run_until(self, until_s):
        """Act whenever something is due."""
        while (due_s := self.background.next_due_s()) <= ORIGIN_S + until_s:
            self.now_s = max(self.now_s, due_s)
            self.background.act(self.now_s)
        self.now_s = ORIGIN_S + until_s

    def rows(self):
        path = self.folder / "background.jsonl"
        return [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []

    def kinds(self):
        return [kind for kind, _, _ in self.events]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    return lambda *flows: Stage(tmp_path, monkeypatch, *flows)


def test_nothing_is_due_before_the_measured_part_begins_nor_without_flows(stage):
    assert stage().background.next_due_s() == math.inf
    waiting = stage(BackgroundFlow(0, 1, "h1", "h2"))
    assert waiting.background.next_due_s() == math.inf
    waiting.background.begin(ORIGIN_S)
    assert waiting.background.next_due_s() == ORIGIN_S


def test_every_flow_is_connected_beforehand_each_on_a_port_of_its_target(stage):
    found = stage(BackgroundFlow(0, 1, "h1", "h2"), BackgroundFlow(2, 3, "h1", "h2"), BackgroundFlow(0, 1, "h1", "h3"))
    assert [(one.flow.target, one.port) for one in found.held] == [("h2", 5201), ("h2", 5202), ("h3", 5201)]
    assert all(one.done == ["wait_for_word"] for one in found.held)
    assert len(found.background.pids) == 6


def test_a_flow_is_released_looked_at_and_stopped_at_its_times(stage):
    play = stage(BackgroundFlow(10, 11.2, "h1", "h2", flows=2))
    play.background.begin(ORIGIN_S)
    play.run_until(9.9)
    assert play.held[0].done == ["wait_for_word"] and play.events == []
    play.run_until(11.1)
    assert play.held[0].done == ["wait_for_word", "release"]
    play.run_until(20)
    assert play.held[0].done == ["wait_for_word", "release", "stop", "kill"]
    assert play.kinds() == ["background_start", "background_end"]
    assert all(data["late_s"] == 0 and data["flows"] == 2 for _, _, data in play.events)
    rows = play.rows()
    assert [(round(row["mono_s"] - ORIGIN_S, 6), round(row["seconds"], 6)) for row in rows[:-1]] == [(10, 0.5), (10.5, 0.5), (11, 0.2)]
    assert rows[0]["goodput_bps"] == pytest.approx(16_000)
    assert rows[0] | {"source": "h1", "target": "h2", "protocol": "tcp", "entry": 0, "retransmits": 0, "lost_packets": None} == rows[0]
    assert play.background.next_due_s() == math.inf


def test_a_late_call_is_told_with_its_true_time(stage):
    play = stage(BackgroundFlow(10, 20, "h1", "h2"))
    play.background.begin(ORIGIN_S)
    play.now_s = ORIGIN_S + 10.25
    play.background.act(play.now_s)
    kind, text, data = play.events[0]
    assert (kind, text) == ("background_start", "flow to h2 began 250 ms late")
    assert data["late_s"] == pytest.approx(0.25)
    assert play.background.next_due_s() == pytest.approx(ORIGIN_S + 10.75)


def test_zeros_are_recorded_while_a_flow_runs_but_not_once_it_has_been_stopped(stage):
    play = stage(BackgroundFlow(0, 1, "h1", "h2"))
    play.meters[0].bytes, play.meters[0].over = 0, False
    play.background.begin(ORIGIN_S)
    play.run_until(0.99)
    assert [row["received_bytes"] for row in play.rows()] == [0]
    play.run_until(10)
    assert [row["received_bytes"] for row in play.rows()] == [0, 0]
    assert play.background.next_due_s() == math.inf  # nothing came of it for so long that it is given up


def test_a_flow_that_ends_by_itself_is_told_once_and_is_recorded_to_its_time(stage):
    play = stage(BackgroundFlow(0, 2, "h1", "h2"))
    play.background.begin(ORIGIN_S)
    play.run_until(0.4)
    play.held[0].has_ended, play.meters[0].bytes = True, 0
    play.run_until(5)
    assert play.kinds() == ["background_start", "background_failed", "background_end"]
    assert play.events[1][1] == "flow to h2 broke off: iperf3: error"
    assert [row["received_bytes"] for row in play.rows()] == [0, 0, 0, 0]


def test_closing_stops_what_runs_and_ends_what_never_began(stage):
    play = stage(BackgroundFlow(0, 100, "h1", "h2"), BackgroundFlow(50, 60, "h1", "h3"))
    play.background.begin(ORIGIN_S)
    play.run_until(1.2)
    play.background.close()
    assert play.held[0].done == ["wait_for_word", "release", "stop", "kill", "end"]
    assert play.held[1].done == ["wait_for_word", "end"]
    assert play.events[-1][1] == "flow to h2 ended with the run"
    assert play.rows()[2]["seconds"] == pytest.approx(0.2)
    assert play.background.pids == []
