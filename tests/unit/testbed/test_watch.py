"""Watching: which run is meant, what is told of it, when it ends, and that nothing of it is needed but what it records."""

from __future__ import annotations

import io
import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from controller.client import ClientError
from testbed import cli, runner
from testbed import watch as module
from testbed.processes import this_process
from testbed.record import write_json
from testbed.watch import Tail, WatchError, find, run_folder, views, watch
from testbed.watch_view import BAR_WIDTH, MOST_LINKS, View, WorkerState, bar, busiest, end_sentence, render, worker_state

DEAD = {**this_process(), "started": 1}
LINK = {
    "id": "bottleneck:s1->s2",
    "link": "bottleneck",
    "configured_bps": 10e6,
    "sent_bps": 9.5e6,
    "utilisation": 0.95,
    "backlog_bytes": 25_000,
    "backlog_ms": 20.0,
    "queue_bytes": 50_000,
    "drops_per_s": 3.0,
    "age_s": 0.02,
}
UNKNOWN = {
    **LINK,
    "id": "access-h1:h1->s1",
    **dict.fromkeys(("sent_bps", "utilisation", "backlog_bytes", "backlog_ms", "drops_per_s", "age_s")),
}


def step(number, train_s, step_s=0.5, **changes):
    return {
        "step": number,
        "train_s": train_s,
        "step_s": step_s,
        "exchange_s": step_s / 5,
        "samples": 32,
        "ratio": 0.1,
        "loss": 1.5,
    } | changes


@pytest.fixture(autouse=True)
def api(monkeypatch):
    """Answer for every run's API."""

    class Answers:
        links: list | ClientError

    Answers.links = [LINK, UNKNOWN]

    class FakeClient:
        def __init__(self, folder, timeout_s):
            pass

        def links(self):
            if isinstance(Answers.links, ClientError):
                raise Answers.links
            return Answers.links

    monkeypatch.setattr(module, "Client", FakeClient)
    return Answers


@pytest.fixture
def experiment(tmp_path):
    folder = tmp_path / "results" / "quick"
    folder.mkdir(parents=True)
    (folder / "experiment.json").write_text("{}")
    return folder


def manifest(folder, status="running", process=None, **changes):
    """Write a run's manifest; its folder is made if need be."""
    (folder / "stream").mkdir(parents=True, exist_ok=True)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"experiment": "quick", "run": folder.name, "scheme_label": "NetSense", "status": status, "started": started}
    write_json(folder / "manifest.json", {**content, "runner": process or this_process(), **changes})
    return folder


def rows(path, *content):
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in content)


@pytest.fixture
def run(experiment):
    """Return a run under way with two workers."""
    folder = manifest(experiment / "netsense")
    for rank in (0, 1):
        rows(folder / "stream" / f"steps-{rank}.jsonl", step(0, 0.5), step(1, 1.0, loss=1.25 + rank))
    rows(
        folder / "stream" / "events-0.jsonl", {"mono_s": time.monotonic() - 7, "kind": "measured_start", "text": "measuring", "data": None}
    )
    rows(folder / "stream" / "events-runner.jsonl", {"mono_s": time.monotonic() - 9, "kind": "booted", "text": "network up", "data": None})
    return folder


def printed(view: View) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(render(view))
    return console.file.getvalue()


def test_a_worker_is_summed_up_over_its_last_seconds():
    early = [step(number, 0.1 * number, 0.1) for number in range(10)]
    late = [step(10 + number, 6.0 + 0.5 * number, ratio=0.05, loss=None) for number in range(4)]
    assert worker_state(3, [*early, *late]) == WorkerState(3, 13, pytest.approx(64.0), 0.05, pytest.approx(0.2), None)
    assert worker_state(0, []) is None
    assert worker_state(0, [step(0, 0.0, 0.0)]).samples_per_s is None


@pytest.mark.parametrize(
    ("fraction", "drawn"), [(None, ""), (0.0, ""), (0.5, "█████"), (1.0, "█" * BAR_WIDTH), (7.0, "█" * BAR_WIDTH), (0.05, "▌"), (-1, "")]
)
def test_a_bar_is_as_long_as_its_fraction(fraction, drawn):
    assert bar(fraction) == drawn


def test_of_many_links_the_busiest_are_shown_in_their_own_order():
    links = [{**LINK, "id": str(number), "backlog_ms": 0.0, "utilisation": 0.0} for number in range(MOST_LINKS + 5)]
    links[-1]["backlog_ms"] = 3.0
    links[2]["utilisation"] = None
    shown = busiest(links)
    assert len(shown) == MOST_LINKS
    assert shown[-1]["id"] == links[-1]["id"]
    assert [int(link["id"]) for link in shown] == sorted(int(link["id"]) for link in shown)
    assert "and 5 less busy" in printed(View("quick", "none", "", "running", None, None, "", 1.0, tuple(links)))


def test_a_run_says_that_its_time_is_dilated():
    view = View("quick", "none", "", "running", None, None, "", 1.0)
    assert "dilated" not in printed(view)
    assert "time dilated 5x (links in the machine's time)" in printed(replace(view, dilation=5.0))


def test_a_run_is_drawn_with_links_workers_and_events(run):
    (view,) = [next(views(run))]
    text = printed(view)
    assert "quick/netsense  NetSense  running" in text
    assert "128.0 samples/s" in text
    (link,) = [line for line in text.splitlines() if "bottleneck" in line]
    assert [word for word in link.split() if "█" not in word] == [
        *("bottleneck:s1->s2", "10.00", "Mbit/s", "9.50", "Mbit/s", "95", "%", "20.0", "ms", "3")
    ]
    assert link.count("█") == 9 + 5
    (unknown,) = [line for line in text.splitlines() if "access-h1" in line]
    assert unknown.split() == ["access-h1:h1->s1", "10.00", "Mbit/s", "-", "-", "-", "-"]
    assert ["1", "1", "64.0", "0.1", "20", "%", "2.250"] in [line.split() for line in text.splitlines()]
    events = [" ".join(line.split()) for line in text.splitlines()[-2:]]
    assert events == ["9 s ago booted network up", "7 s ago measured_start measuring"]


def test_a_run_whose_api_does_not_answer_is_drawn_with_the_reason(run, api):
    api.links = ClientError("the run does not answer: it is booting")
    text = printed(next(views(run)))
    assert "it is booting" in text
    assert "128.0 samples/s" in text


@pytest.mark.parametrize(
    ("status", "changes", "words"),
    [
        ("complete", {"valid": True}, "quick/netsense is complete and valid"),
        ("complete", {"valid": False, "invalid_reasons": ["fidelity 0.9", "drops"]}, "complete but INVALID: fidelity 0.9; drops"),
        ("failed", {"reason": "worker 1 ended"}, "quick/netsense failed: worker 1 ended"),
        ("running", {"runner": DEAD}, "quick/netsense was killed before it ended"),
    ],
)
def test_the_end_of_a_run_is_told(experiment, status, changes, words):
    (view,) = views(manifest(experiment / "netsense", status, **changes))
    assert words in end_sentence(view).plain
    assert words in printed(view)


def test_a_view_is_plain_data_for_machines(run):
    content = json.loads(json.dumps(next(views(run)).to_json()))
    assert content["status"] == "running"
    assert content["links"][0] == LINK
    assert content["workers"][1]["loss"] == 2.25
    assert content["events"][0]["kind"] == "booted"


def test_a_tail_reads_whole_rows_only_once_and_only_the_end_of_a_long_file(tmp_path):
    path = tmp_path / "steps-0.jsonl"
    tail = Tail(path)
    assert tail.rows() == []
    rows(path, *[{"step": number, "text": "x" * 1000} for number in range(200)])
    first = tail.rows()
    assert first[-1]["step"] == 199
    assert 50 < len(first) < 70
    with path.open("a") as file:
        file.write('{"step": 200, "te')
        file.flush()
        assert tail.rows() == first
        file.write('xt": "x"}\n[1]\nnonsense\n')
    assert [row["step"] for row in tail.rows()[len(first) :]] == [200]
    path.unlink()
    assert tail.rows() == []
    rows(path, {"step": 0})
    assert tail.rows() == [{"step": 0}]


def test_what_a_worker_lays_in_the_place_of_its_file_is_not_read_and_holds_up_nobody(run):
    stream = run / "stream"
    os.mkfifo(stream / "steps-2.jsonl")
    (stream / "steps-3.jsonl").symlink_to("steps-0.jsonl")
    rows(stream / "steps-\u00b2.jsonl", step(0, 0.5))  # a digit, and no number
    assert [worker.rank for worker in next(views(run)).workers] == [0, 1]


def test_without_a_name_the_newest_experiment_is_watched(experiment):
    newer = experiment.with_name("sweep")
    newer.mkdir()
    (newer / "experiment.json").write_text("{}")
    os.utime(experiment / "experiment.json", (1, 1))
    assert find(None, experiment.parent) == newer


def test_a_run_and_an_experiment_are_found_by_folder_or_within_the_results(experiment, run):
    results = experiment.parent
    assert find(run, results) == run
    assert find(experiment, results) == experiment
    assert find(module.Path("quick/netsense"), results) == run


@pytest.mark.parametrize("where", [None, "nowhere", "."])
def test_where_nothing_is_to_be_watched_it_is_told(tmp_path, where):
    with pytest.raises(WatchError, match=r"testbed run|such as results/quick"):
        find(None if where is None else tmp_path / where, tmp_path)


def test_of_an_experiment_the_living_run_is_watched_else_the_last(experiment):
    assert run_folder(experiment) is None
    living = manifest(experiment / "b-living")
    manifest(experiment / "c-killed", process=DEAD)
    last = manifest(experiment / "a-complete", "complete")
    assert run_folder(experiment) == living
    manifest(living, "complete")
    os.utime(living / "manifest.json", (1, 1))
    os.utime(experiment / "c-killed" / "manifest.json", (1, 1))
    assert run_folder(experiment) == last


def test_an_experiment_is_followed_from_run_to_run_until_its_process_ends(experiment):
    seen = views(experiment)
    assert next(seen).no_links == "no run has begun yet"
    first = manifest(experiment / "none")
    assert (view := next(seen)).run == "none" and view.is_running
    manifest(first, "complete", valid=True)
    assert next(seen).status == "complete"
    os.utime(first / "manifest.json", (1, 1))
    second = manifest(experiment / "netsense")
    assert (view := next(seen)).run == "netsense" and view.is_running
    manifest(second, "failed", DEAD, reason="oh")
    assert next(seen).status == "failed"
    assert list(seen) == []


def test_a_run_that_is_done_once_more_is_watched_again(experiment):
    folder = manifest(experiment / "none", "complete", valid=False)
    seen = views(experiment)
    assert next(seen).status == "complete"
    folder.rename(experiment / "aside")
    (experiment / "aside").rename(experiment.parent / "aside")
    manifest(folder, started="2030-01-01T00:00:00+00:00")
    assert next(seen).is_running


@pytest.fixture
def shown(monkeypatch, run):
    """Let the run end at the third look, and return a function that watches it."""

    def watched(console=None, **options):
        looks = iter([None, None, lambda: manifest(run, "complete", valid=True)])

        def sleep(seconds):
            if (change := next(looks)) is not None:
                change()

        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        watch(run, console or Console(file=io.StringIO(), width=140), **({"once": False, "as_json": False, "interval_s": 0.5} | options))

    return watched


def test_once_shows_one_view(shown):
    console = Console(file=io.StringIO(), width=140)
    shown(console, once=True)
    assert console.file.getvalue().count("bottleneck") == 1


def test_json_has_a_line_a_look_and_the_last_tells_the_end(shown, capsys):
    shown(as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == ["running", "running", "running", "complete"]


def test_without_a_terminal_each_look_is_printed(shown):
    console = Console(file=io.StringIO(), width=140)
    shown(console)
    assert console.file.getvalue().count("bottleneck") == 3
    assert console.file.getvalue().count("is complete and valid") == 1


def test_in_a_terminal_the_view_lives_and_the_end_stays(shown):
    console = Console(file=io.StringIO(), width=140, force_terminal=True, legacy_windows=False)
    shown(console)
    assert "bottleneck" in console.file.getvalue()
    assert console.file.getvalue().count("is complete and valid") == 1


def test_the_end_of_a_run_is_told_once_while_the_next_is_waited_for(monkeypatch):
    ended = View("quick", "none", "", "complete", None, True, "then", None)
    again = replace(ended, started="later")
    monkeypatch.setattr(module, "views", lambda folder, interval_s: iter([ended, ended, ended, again, again]))
    seen = []
    module._follow(None, False, 0.0, seen.append)
    assert seen == [ended, again]


def test_ctrl_c_leaves_quietly(monkeypatch, run):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=interrupted, monotonic=time.monotonic))
    done = CliRunner().invoke(cli.app, ["watch", str(run)])
    assert done.exit_code == 0
    assert "bottleneck" in done.stdout
    assert done.stderr == ""


def test_the_command_prints_json_once(run):
    done = CliRunner().invoke(cli.app, ["watch", str(run), "--once", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["run"] == "netsense"


def test_the_command_tells_bad_input(tmp_path):
    done = CliRunner().invoke(cli.app, ["watch", str(tmp_path / "nowhere"), "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert "such as results/quick" in Text.from_ansi(done.stderr).plain


@pytest.mark.parametrize(
    ("given", "address"),
    [([], None), (["--listen", "9464"], ("127.0.0.1", 9464)), (["--listen", "0.0.0.0:9464"], ("0.0.0.0", 9464))],
)
def test_the_address_to_listen_on_reaches_the_runner(monkeypatch, tmp_path, given, address):
    seen = []
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: None)
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: seen.append(options.listen) or tmp_path)
    assert CliRunner().invoke(cli.app, ["run", "quick.yaml", *given]).exit_code == 0
    assert seen == [address]


@pytest.mark.parametrize("listen", ["0", "65536", "-1", "http", "", "0.0.0.0:", "0.0.0.0:0", "256.0.0.1:9464", "testbed:9464", "::1:9464"])
def test_an_address_that_does_not_exist_is_bad_input(listen):
    done = CliRunner().invoke(cli.app, ["run", "quick.yaml", "--listen", listen])
    assert done.exit_code == 2
    assert f"--listen {listen}: write a port" in done.stderr.replace("\n", " ")
