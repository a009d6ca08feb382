"""A run as the API shows it: queues from the board, paths and links as the controller tells them, and pins that it answers or does not."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from controller.api import ControlError
from controller.board import Board, BoardError, QueueInfo, QueueReading
from controller.handlers import Handlers, Request
from controller.openapi import Topology
from testbed.emulation import live as live_module
from testbed.emulation.live import LiveRun
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(2, LinkSpec(8e6), LinkSpec(100e6))
PATH = ["h1", "s1", "s2", "h2"]
READING = QueueReading(12.5, 9_000_000, 6000, 25_000, 17, 7, 40, 8e6, 3.5)


class Sandbox:
    """What is asked goes in; each request is answered as a test says, at once."""

    def __init__(self):
        self.asked = []
        self.answer = lambda number: None  # no answer

    def ask(self, request):
        self.asked.append(request)
        self.answer(request["pin"]["id"])


@pytest.fixture
def board(tmp_path):
    infos = [QueueInfo(f"bottleneck:{a}->{b}", "bottleneck", a, b, "", 50_000, 0.0, True) for a, b in (("s1", "s2"), ("s2", "s1"))]
    board = Board.create(tmp_path / "board.bin", infos, [8e6, 4e6])
    yield board
    board.close()


@pytest.fixture
def sandbox():
    return Sandbox()


@pytest.fixture
def live(board, sandbox, monkeypatch):
    monkeypatch.setattr(live_module, "ANSWER_S", 0.02)
    run = LiveRun("quick", "topk_r1", NETWORK, board.path, sandbox.ask)
    yield run
    run.close()


def pinned(number, error=None, **more):
    return {"event": "pinned", "id": number, "error": error, **more}


def test_the_run_is_named_and_its_queues_are_those_of_the_board(live, board):
    assert live.run() == {"experiment": "quick", "run": "topk_r1"}
    assert [(entry.info, entry.configured_bps, entry.queue) for entry in live.entries()] == [
        (board.infos[0], 8e6, None),
        (board.infos[1], 4e6, None),
    ]
    board.write_queue(1, READING)
    assert [entry.queue for entry in live.entries()] == [None, READING]


def test_there_is_no_live_run_without_its_board(tmp_path, sandbox):
    with pytest.raises(BoardError, match=r"board\.bin cannot be opened"):
        LiveRun("quick", "none", NETWORK, tmp_path / "board.bin", sandbox.ask)


def test_the_topology_tells_nodes_and_links(live):
    found = live.topology()
    assert Topology.model_validate(found).model_dump() == found
    assert (found["hosts"], found["switches"], found["down"]) == (["h1", "h2"], ["s1", "s2"], [])
    assert found["links"] == [
        {"name": "bottleneck", "a": "s1", "b": "s2", "bottleneck": True},
        {"name": "access-h1", "a": "h1", "b": "s1", "bottleneck": False},
        {"name": "access-h2", "a": "h2", "b": "s2", "bottleneck": False},
    ]


def test_links_that_are_down_are_in_the_topology_in_order_until_they_are_up(live):
    for link in ("bottleneck", "access-h1", "bottleneck"):
        live.hear({"event": "link_down", "link": link})
    assert live.topology()["down"] == ["access-h1", "bottleneck"]
    live.hear({"event": "link_up", "link": "bottleneck"})
    assert live.topology()["down"] == ["access-h1"]
    live.hear({"event": "link_up", "link": "bottleneck"})  # as it was
    live.hear({"event": "link_up", "link": "access-h1"})
    assert live.topology()["down"] == []


def test_paths_are_what_the_controller_last_told(live):
    assert live.paths() == []
    live.hear({"event": "installed", "paths": [PATH]})
    live.hear({"event": "switch_left", "switch": "s1"})
    assert live.paths() == [PATH]
    live.hear({"event": "rerouted", "link": "bottleneck", "paths": []})
    assert live.paths() == []
    live.hear(pinned(9, paths=[PATH[::-1]]))
    assert live.paths() == [PATH[::-1]]


def test_a_pin_that_is_granted_has_no_objection(live, sandbox):
    sandbox.answer = lambda number: live.hear(pinned(number, paths=[PATH]))
    assert live.pin(PATH) is None
    assert sandbox.asked == [{"pin": {"id": 1, "path": PATH}}]
    assert live.paths() == [PATH]


def test_a_pin_that_is_refused_has_the_controllers_objection(live, sandbox):
    sandbox.answer = lambda number: live.hear(pinned(number, "not today", paths=[PATH]))
    assert live.pin(PATH) == "not today"


def test_a_pin_that_is_no_path_is_refused_without_asking(live, sandbox):
    assert live.pin(["h1", "h2"]) == "the path goes from h1 to h2, but no link joins them"
    assert sandbox.asked == []


def test_a_new_controller_tells_which_links_are_down_now(live):
    live.hear({"event": "link_down", "link": "bottleneck"})
    live.hear({"event": "installed", "paths": [PATH], "down": ["access-h1"]})
    assert live.topology()["down"] == ["access-h1"]


def test_a_pin_that_is_not_answered_is_given_up_after_a_while(live, sandbox):
    began = time.monotonic()
    with pytest.raises(ControlError, match=r"^the controller does not answer just now; try again in a second$"):
        live.pin(PATH)
    assert time.monotonic() - began >= 0.02
    assert sandbox.asked == [{"pin": {"id": 1, "path": PATH}}]


def test_a_pin_that_found_no_controller_is_not_waited_for(live, sandbox, monkeypatch):
    monkeypatch.setattr(live_module, "ANSWER_S", 20.0)
    sandbox.answer = lambda number: live.hear(pinned(number, "the controller was lost", unavailable=True))
    began = time.monotonic()
    with pytest.raises(ControlError, match="does not answer just now"):
        live.pin(PATH)
    assert time.monotonic() - began < 10


def test_an_answer_that_comes_too_late_is_no_answer_to_the_next_pin(live, sandbox):
    with pytest.raises(ControlError):
        live.pin(PATH)
    sandbox.answer = lambda number: live.hear(pinned(1))
    with pytest.raises(ControlError):
        live.pin(PATH)
    live.hear(pinned(2, "too late"))
    sandbox.answer = lambda number: live.hear(pinned(number))
    assert live.pin(PATH) is None
    assert [request["pin"]["id"] for request in sandbox.asked] == [1, 2, 3]


def test_a_pin_that_cannot_be_sent_any_more_is_told(live, sandbox):
    def gone(number):
        raise BrokenPipeError

    sandbox.answer = gone
    with pytest.raises(ControlError, match=r"^the run is ending$"):
        live.pin(PATH)


def test_pins_that_wait_at_the_same_time_get_each_its_own_answer(live, sandbox, monkeypatch):
    monkeypatch.setattr(live_module, "ANSWER_S", 20.0)
    asked: queue.Queue[int] = queue.Queue()
    sandbox.answer = asked.put
    answers = {}
    threads = []
    for path in (PATH, PATH[::-1]):
        threads.append(threading.Thread(target=lambda path=path: answers.__setitem__(path[0], live.pin(path)), daemon=True))
        threads[-1].start()
    numbers = {asked.get(timeout=20) for _ in threads}
    paths = {request["pin"]["id"]: request["pin"]["path"][0] for request in sandbox.asked}
    for number in sorted(numbers, reverse=True):
        live.hear(pinned(number, f"no to the {paths[number]}"))
    for thread in threads:
        thread.join(20)
    assert answers == {"h1": "no to the h1", "h2": "no to the h2"}


def test_the_api_can_ask_it_everything(live, sandbox):
    handlers = Handlers(live)
    for target in ("/", "/links", "/links/bottleneck:s1->s2", "/topology", "/paths", "/metrics"):
        assert handlers.answer(Request("GET", target)).status == 200
    pin = Request("POST", "/paths", b'{"path": ["h1", "s1", "s2", "h2"]}', "application/json")
    assert handlers.answer(pin).status == 503
    sandbox.answer = lambda number: live.hear(pinned(number, paths=[PATH]))
    answered = handlers.answer(pin)
    assert (answered.status, answered.body) == (200, b'[["h1","s1","s2","h2"]]')
    sandbox.answer = lambda number: live.hear(pinned(number, "not this one"))
    refused = handlers.answer(pin)
    assert (refused.status, refused.body) == (400, b'{"error":"not this one"}')
