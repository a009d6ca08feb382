"""Progress: what can be told of a run from what it has recorded so far, and how it is printed."""

from __future__ import annotations

import io
import json
import os
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from testbed import progress as module
from testbed.forecast import Duration
from testbed.progress import Progress, RunState, Watcher

STEP = {"ratio": 0.1, "samples": 32}


@pytest.fixture
def stream(tmp_path):
    """Return a function that appends rows to a file of the run's stream."""

    def append(name, *rows):
        with (tmp_path / name).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    append.path = tmp_path
    return append


def step(number, train_s):
    return {**STEP, "step": number, "train_s": train_s}


def sample(link, backlog_bytes):
    return {"link": link, "backlog_bytes": backlog_bytes}


def test_before_the_first_measured_step_there_is_no_state(stream):
    watcher = Watcher(stream.path, 4, {"seconds": 60})
    assert watcher.state() is None
    stream("links.jsonl", sample("bottleneck", 1))
    assert watcher.state() is None


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_a_worker_lays_in_the_place_of_its_file_is_not_read_and_holds_up_nobody(stream, kind):
    laid = stream.path / "steps-0.jsonl"
    if kind == "pipe":
        os.mkfifo(laid)
    else:
        stream("elsewhere", step(0, 0.5))
        laid.symlink_to(stream.path / "elsewhere")
    assert Watcher(stream.path, 4, {"seconds": 60}).state() is None


def test_the_state_is_that_of_the_last_whole_row(stream):
    stream("steps-0.jsonl", step(0, 0.5), step(1, 1.0))
    with (stream.path / "steps-0.jsonl").open("a") as file:
        file.write('{"step": 2, "train')
    state = Watcher(stream.path, 4, {"seconds": 60}).state()
    assert (state.step, state.train_s, state.ratio) == (1, 1.0, 0.1)


def test_where_time_is_dilated_what_is_left_is_told_in_the_time_of_those_who_wait(stream):
    stream("steps-0.jsonl", step(0, 0.5), step(1, 1.0))
    assert Watcher(stream.path, 4, {"seconds": 60}, dilation=5.0).state().left_s == pytest.approx(5 * 59)


def test_the_speed_is_unknown_at_first_then_that_of_all_workers_since_the_last_look(stream):
    watcher = Watcher(stream.path, 4, {"seconds": 60})
    stream("steps-0.jsonl", step(0, 0.5))
    assert watcher.state().samples_per_s is None
    stream("steps-0.jsonl", step(4, 2.5))
    assert watcher.state().samples_per_s == pytest.approx(4 * 32 * 4 / 2.0)


def test_the_speed_forgets_what_is_more_than_five_seconds_old(stream):
    watcher = Watcher(stream.path, 1, {"seconds": 60})
    for number, train_s in ((0, 1.0), (1, 10.0), (5, 14.0)):
        stream("steps-0.jsonl", step(number, train_s))
        state = watcher.state()
    assert state.samples_per_s == pytest.approx(4 * 32 / 4.0)


@pytest.mark.parametrize(
    ("budget", "left_s"),
    [
        ({"seconds": 60.0}, 50.0),
        ({"seconds": 5.0}, 0.0),
        ({"steps": 100}, 40.0),  # 20 steps took 10 s
        ({"seconds": 60.0, "steps": 100}, 40.0),
        ({"seconds": 30.0, "steps": 100}, 20.0),
        ({"seconds": None, "steps": None, "accuracy": 0.8}, None),
    ],
)
def test_the_time_left_is_that_of_the_budget_which_ends_first(stream, budget, left_s):
    stream("steps-0.jsonl", step(19, 10.0))
    assert Watcher(stream.path, 4, budget).state().left_s == (None if left_s is None else pytest.approx(left_s))


def test_the_backlog_is_the_largest_of_the_bottlenecks_last_samples(stream):
    stream("steps-0.jsonl", step(0, 0.5))
    watcher = Watcher(stream.path, 4, {"seconds": 60})
    assert watcher.state().backlog_bytes is None
    stream("links.jsonl", sample("bottleneck", 9000), *[sample("bottleneck", b) for b in (10, 30, 20, 0)], sample("access-h1", 7777))
    assert watcher.state().backlog_bytes == 30


def test_without_a_bottleneck_the_backlog_is_that_of_any_link(stream):
    stream("steps-0.jsonl", step(0, 0.5))
    stream("links.jsonl", sample("access-h1", 500), sample("access-h2", 700))
    assert Watcher(stream.path, 4, {"seconds": 60}).state().backlog_bytes == 700


def test_a_long_file_is_read_from_its_end_only(stream):
    stream("steps-0.jsonl", *[{**step(number, number / 2), "text": "x" * 100} for number in range(1000)])
    assert Watcher(stream.path, 4, {"seconds": 600}).state().step == 999


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def output():
    return io.StringIO()


@pytest.fixture
def progress(output, clock):
    return Progress(Console(file=output, width=40, force_terminal=False), total_runs=8)


STATE = RunState(step=12, train_s=6.0, samples_per_s=256.04, ratio=0.1, backlog_bytes=25_000, left_s=54.0)


def test_without_a_terminal_a_run_is_told_in_plain_lines_however_long(progress, output):
    progress.begin(2, "topk-0.1_train")
    progress.stage("booting the network")
    progress.end("done: 120 steps, fidelity 0.996, and a good deal more to be said", "green")
    lines = output.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].split() == ["[2/8]", "topk-0.1_train", "starting"]
    assert lines[1].endswith("topk-0.1_train           done: 120 steps, fidelity 0.996, and a good deal more to be said")
    assert "\x1b" not in output.getvalue()


def test_without_a_terminal_the_state_is_printed_every_ten_seconds(progress, output, clock):
    progress.begin(1, "none")
    for clock.now in (1009.9, 1010.1, 1015.0, 1020.0, 1020.2):
        progress.update(STATE)
    lines = output.getvalue().splitlines()[1:]
    assert len(lines) == 2
    assert " ".join(lines[0].split()) == "[1/8] none step 12 6.0 s 256.0 samples/s ratio 0.1 backlog 25.0 kB 54 s left"


def test_the_time_left_over_all_runs_stands_beside_each(progress, output, clock):
    progress.expect(Duration(72.0), Duration(600.0, unknown_runs=1))
    progress.begin(1, "none")
    clock.now += 11
    progress.update(STATE)
    progress.expect(Duration(72.0), Duration())
    progress.begin(8, "fp16")
    lines = output.getvalue().splitlines()
    assert lines[0].endswith("starting  (all: about 11 min and 1 run of unknown length left)")
    assert lines[1].endswith("54 s left  (all: about 11 min and 1 run of unknown length left)")
    assert lines[2].endswith("starting")


def test_a_run_passed_over_takes_one_line(progress, output):
    progress.pass_over(3, "none", "already there", "dim")
    assert [line.split() for line in output.getvalue().splitlines()] == [["[3/8]", "none", "already", "there"]]


def test_what_is_not_known_is_not_printed(progress, output, clock):
    progress.begin(1, "none")
    clock.now += 11
    progress.update(None)
    progress.update(RunState(0, 0.5, None, None, None, None))
    assert [" ".join(line.split()) for line in output.getvalue().splitlines()[1:]] == ["[1/8] none step 0 0.5 s"]


def test_in_a_narrow_terminal_nothing_wraps_and_the_time_left_is_what_is_seen(clock):
    output = io.StringIO()
    progress = Progress(Console(file=output, width=60, force_terminal=True, legacy_windows=False, color_system=None), total_runs=60)
    progress.expect(Duration(72.0), Duration(600.0))
    progress.begin(12, "netsense_rate-5mbit_delay-50ms")
    progress.stage("verifying the network")
    progress.update(STATE)
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in output.getvalue().splitlines()]
    progress.close()
    assert "[12/60] netsense_rate-5mbit_delay-50ms verifying the network" in shown
    assert shown[-2] == "[12/60] netsense_rate-5mbit_delay-50ms 54 s left"
    assert shown[-1] == "  (all: about 11 min left)  step 12  6.0 s  256.0 samples/s…"


def test_in_a_terminal_two_lines_live_and_the_last_word_stays(clock):
    output = io.StringIO()
    progress = Progress(Console(file=output, width=120, force_terminal=True, legacy_windows=False), total_runs=1)
    progress.begin(1, "none")
    progress.update(STATE)
    progress.end("done")
    assert "256.0 samples/s" in output.getvalue()
    assert output.getvalue().rstrip().splitlines()[-1].rstrip().endswith("done")
    progress.close()
