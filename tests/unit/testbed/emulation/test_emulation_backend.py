"""What the runner makes of what a sandbox says: sentences, events, stages, faults; the sandbox is a script here."""

from __future__ import annotations

import ast
import json
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from controller.board import Board, QueueInfo
from controller.client import Client, ClientError
from testbed.emulation.backend import NotFaithful, RunFailed, Tell, execute, in_words
from testbed.emulation.plan import RunPlan
from testbed.emulation.sandboxes import Sandboxes
from testbed.record import RunFolder, read_lines
from topologies import LinkSpec, dumbbell

REPOSITORY = Path(__file__).parents[4]
PATIENCE_S = 20.0
PATH = ["h1", "s1", "s2", "h2"]
WORDS = [
    ({"event": "listening"}, "listening"),
    (
        {"event": "installed", "seconds": 0.1234, "rules": 48, "switches": 4, "paths": []},
        "48 rules on 4 switches installed and acknowledged in 0.12 s",
    ),
    ({"event": "link_down", "link": "fabric-l1-p1"}, "link fabric-l1-p1 is down"),
    ({"event": "link_up", "link": "fabric-l1-p1"}, "link fabric-l1-p1 is up"),
    (
        {"event": "rerouted", "link": "fabric-l1-p1", "pairs": 4, "unreachable": [], "seconds": 0.0126, "paths": []},
        "fabric-l1-p1: 4 pairs re-routed in 13 ms",
    ),
    (
        {"event": "rerouted", "link": "access-h1", "pairs": 3, "unreachable": [["h1", "h2"], ["h1", "h3"]], "seconds": 2.0, "paths": []},
        "access-h1: 3 pairs re-routed in 2000 ms, 2 pairs have no path",
    ),
    ({"event": "pinned", "id": 7, "error": None, "path": ["h1", "s1", "h2"], "paths": []}, "pinned: h1 s1 h2"),
    (
        {"event": "pinned", "id": 7, "error": None, "path": ["h1", "s1", "h2"], "note": "not in force: s1-h2 is down", "paths": []},
        "pinned: h1 s1 h2 (not in force: s1-h2 is down)",
    ),
    ({"event": "pinned", "id": 7, "error": "no link joins them", "paths": []}, "no link joins them"),
    ({"event": "switch_left", "switch": "l1"}, "switch l1 has left"),
    ({"event": "switch_joined", "switch": "l1"}, "switch l1 has joined"),
    ({"event": "error", "text": "OSError: the port is taken"}, "OSError: the port is taken"),
    (
        {"event": "controller_lost", "text": "controller ended with code 1", "generation": 1},
        "controller ended with code 1; another one takes over",
    ),
]


@pytest.mark.parametrize(("said", "sentence"), WORDS, ids=[sentence for _, sentence in WORDS])
def test_what_the_controller_says_is_put_into_a_sentence(said, sentence):
    assert in_words(said) == sentence


def test_there_is_a_sentence_for_everything_that_the_controller_says_it_says():
    documented = ast.get_docstring(ast.parse((REPOSITORY / "controller" / "__main__.py").read_text()))
    events = {name for names in re.findall(r'\{"event": ((?:"\w+"(?: \| )?)+)', documented) for name in re.findall(r"\w+", names)}
    assert {"listening", "switch_joined", "error"} <= events
    assert (events - {"alive"}) | {"controller_lost"} == {said["event"] for said, _ in WORDS}  # that one is not passed on


# Reads plans and says each line of the script; where it has None, waits for a pin and grants it.
SANDBOX = """\
    import json
    import sys

    def say(**message):
        print(json.dumps(message), flush=True)

    for line in sys.stdin:
        plan = json.loads(line)
        if "pin" in plan:
            continue
        print("the sandbox of", plan["run"], file=sys.stderr, flush=True)
        with open("script.json") as file:
            script = json.load(file)
        for message in script["lines"]:
            if message is None:
                request = json.loads(sys.stdin.readline())["pin"]
                answer = {"event": "pinned", "id": request["id"], "error": None, "path": request["path"], "paths": [request["path"]]}
                say(event="controller", message=answer)
            else:
                say(**message)
        if script["dies"]:
            sys.exit(script["code"])
        say(event="ended", code=script["code"])
"""
BOOTED = {"event": "booted", "seconds": 1.5, "substituted": ["datapath"], "rules_s": 0.25, "paths": [PATH, PATH[::-1]]}
VERIFIED = {"event": "verified", "verification": {"seconds": 2.0}, "transport": {"mtu": 1500}}
DONE = {"event": "done", "marks": {}}


class Runner:
    """Runs scripts in place of sandboxes and notes what it is told."""

    def __init__(self, path):
        for package in (path / "testbed", path / "testbed" / "emulation"):
            package.mkdir()
            (package / "__init__.py").touch()
        (path / "testbed" / "emulation" / "inside.py").write_text(dedent(SANDBOX))
        self.script = path / "script.json"
        self.folder = RunFolder(path / "none", {"experiment": "quick", "run": "none", "substituted": ["reno"]})
        self.stages = []
        self.sandboxes = Sandboxes()
        network = dumbbell(2, LinkSpec(8e6), LinkSpec(100e6))
        self.plan = RunPlan("none", str(path / "none"), network, 1500, {}, False, 1, {}, {}, {})

    def run(self, *lines, code=0, dies=False, tick=lambda: None):
        self.script.write_text(json.dumps({"lines": lines, "code": code, "dies": dies}))
        execute(self.plan, self.folder, Tell(self.stages.append, tick), self.sandboxes)

    def process(self):
        return self.sandboxes.process(self.folder.logs / "sandbox.log")

    def make_board(self):
        info = QueueInfo("bottleneck:s1->s2", "bottleneck", "s1", "s2", "", 50_000, 0.0, True)
        Board.create(self.folder.stream / "board.bin", [info], [8e6]).close()

    def events(self):
        rows = read_lines(self.folder.stream / "events-runner.jsonl")
        return {row["kind"]: (row["text"], row["data"]) for row in rows}


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Runner(tmp_path)
    with made.sandboxes:
        yield made


def test_a_run_goes_through_its_stages_and_what_was_measured_is_in_the_manifest(runner):
    runner.make_board()
    runner.run(BOOTED, VERIFIED, {"event": "started", "rank": 1}, DONE)
    assert runner.stages == ["booting the network", "verifying the network", "starting workers", "worker 1 started, warming up"]
    manifest = json.loads((runner.folder.path / "manifest.json").read_text())
    assert (manifest["boot_s"], manifest["substituted"], manifest["paths"]) == (1.5, ["reno", "datapath"], [PATH, PATH[::-1]])
    assert (manifest["verification"], manifest["transport"]) == ({"seconds": 2.0}, {"mtu": 1500})
    assert runner.events() == {
        "booted": ("network up in 1.50 s, rules installed in 0.25 s", None),
        "verified": ("rates and round-trip times verified in 2.00 s", None),
    }


def test_what_the_controller_says_is_an_event_without_the_paths(runner):
    rerouted = {"event": "rerouted", "link": "bottleneck", "pairs": 1, "unreachable": [], "seconds": 0.004, "paths": [PATH]}
    runner.run({"event": "controller", "message": rerouted}, DONE)
    data = {"event": "rerouted", "link": "bottleneck", "pairs": 1, "unreachable": [], "seconds": 0.004}
    assert runner.events() == {"rerouted": ("bottleneck: 1 pairs re-routed in 4 ms", data)}


def test_a_run_can_be_watched_and_steered_while_it_goes_on(runner):
    runner.make_board()
    client, answers, threads = Client(runner.folder.path), [], []

    def steer():
        answers.append([link["id"] for link in client.links()])
        answers.append(client.paths())
        answers.append(client.pin(PATH))
        with suppress(ClientError):  # the run ends while it is answered
            client.pin(PATH)

    def tick():
        if runner.stages[-1] == "starting workers" and not threads:
            threads.append(threading.Thread(target=steer, daemon=True))
            threads[0].start()

    runner.run(BOOTED, VERIFIED, None, None, DONE, tick=tick)
    threads[0].join(PATIENCE_S)
    assert answers == [["bottleneck:s1->s2"], [PATH, PATH[::-1]], [PATH]]
    assert runner.events()["pinned"] == (f"pinned: {' '.join(PATH)}", {"event": "pinned", "id": 2, "error": None, "path": PATH})
    assert json.loads((runner.folder.path / "manifest.json").read_text())["steered"] is True
    with pytest.raises(ClientError):
        client.paths()


def test_the_socket_alone_is_given_to_the_user_and_is_not_in_the_folder_that_workers_see(runner, monkeypatch):
    given, folder = [], runner.folder

    def give(path):
        given.append((path, path.is_socket(), (folder.stream / "api.sock").readlink()))

    monkeypatch.setattr("testbed.emulation.backend.give_to_caller", give)
    runner.make_board()
    runner.run(BOOTED, VERIFIED, DONE)
    assert given == [(folder.path / "api.sock", True, Path("../api.sock"))]
    assert not any(path.name == "api.sock" for path in folder.path.rglob("*"))  # at the end


def test_a_run_without_a_board_cannot_be_watched_but_goes_on(runner):
    runner.run(BOOTED, VERIFIED, {"event": "controller", "message": {"event": "link_down", "link": "bottleneck"}}, DONE)
    text, _ = runner.events()["no_api"]
    assert text.startswith("nobody can watch this run: ") and "board.bin" in text
    assert runner.events()["link_down"][0] == "link bottleneck is down"


@pytest.mark.parametrize(("code", "what"), [(3, "ended with code 3"), (-9, "was killed by signal 9")])
def test_a_worker_that_failed_is_told_with_the_end_of_its_log(runner, code, what):
    (runner.folder.logs / "worker-1.log").write_text("".join(f"line {i}\n" for i in range(20)))
    failed = {"event": "worker_failed", "rank": 1, "code": code, "why": None, "log": "logs/worker-1.log"}
    with pytest.raises(RunFailed) as caught:
        runner.run(failed, DONE)
    assert str(caught.value).splitlines() == [f"worker 1 {what}; its last lines:", *(f"line {i}" for i in range(8, 20))]
    assert runner.events()["worker_failed"][1] == {"rank": 1, "code": code, "why": None, "log": "logs/worker-1.log"}


@pytest.mark.parametrize(("kind", "fault"), [("VerificationError", NotFaithful), ("RuntimeError", RunFailed)])
def test_only_a_network_that_was_found_wrong_may_be_better_another_time(runner, kind, fault):
    with pytest.raises(RunFailed, match=r"^half of its rate$") as caught:
        runner.run({"event": "error", "kind": kind, "text": "half of its rate"}, code=1)
    assert caught.type is fault
    assert runner.events() == {"error": ("half of its rate", None)}


@pytest.mark.parametrize("dies", [False, True], ids=["the sandbox alone", "with the process it was forked from"])
def test_a_sandbox_that_ends_without_a_word_is_told_with_the_end_of_its_log(runner, dies):
    with pytest.raises(RunFailed, match=r"^the sandbox ended with code 4\nthe sandbox of none$"):
        runner.run(code=4, dies=dies)


def test_one_process_serves_run_after_run_also_after_one_that_ended_badly(runner):
    runner.run(DONE)
    first = runner.process()
    with pytest.raises(RunFailed):
        runner.run(code=3)
    runner.run(DONE)
    assert runner.process() is first


def test_a_run_that_fails_in_the_middle_takes_its_process_with_it_and_the_next_has_another(runner):
    first = runner.process()
    with pytest.raises(RunFailed):
        runner.run({"event": "error", "kind": "RuntimeError", "text": "no switch"}, None)
    assert first.returncode == -signal.SIGKILL
    runner.run(DONE)


def test_a_process_that_died_meanwhile_is_replaced(runner):
    process = runner.process()
    process.kill()
    process.wait()
    runner.run(DONE)


def test_a_request_that_came_too_late_for_its_run_disturbs_no_other(runner):
    runner.run(DONE)
    runner.process().stdin.write(b'{"pin": {"id": 1, "path": []}}\n')
    runner.run(DONE)
