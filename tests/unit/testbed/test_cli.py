"""The command line: JSON for machines, sentences on the error output, and exit codes that tell bad input from failed runs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest
from rich.text import Text
from typer.testing import CliRunner

from testbed import cli, doctor, machine, runner
from testbed.doctor import Finding
from testbed.processes import this_process
from testbed.record import write_json

GOOD = """\
name: small
topology: {kind: star, workers: 2, link: {rate: 10mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {seconds: 20}}
schemes: [none]
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Tie the tests to no launcher and no results folder of this machine."""
    monkeypatch.setattr(cli.processes, "die_with_launchers", lambda: None)
    monkeypatch.delenv("TESTBED_RESULTS", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(tmp_path)


@dataclass(frozen=True)
class Done:
    exit_code: int
    stdout: str
    stderr: str


def testbed(*arguments: str) -> Done:
    """Run the command line and return what it printed, less the colours."""
    done = CliRunner().invoke(cli.app, list(arguments))
    return Done(done.exit_code, Text.from_ansi(done.stdout).plain, Text.from_ansi(done.stderr).plain)


testbed.__test__ = False  # a helper, though its name begins like a test's


@pytest.mark.parametrize("command", ["run", "watch", "report", "doctor", "clean", "schemes", "topologies"])
def test_every_command_explains_itself(command):
    done = testbed(command, "--help")
    assert done.exit_code == 0
    assert f"testbed {command}" in done.stdout


def test_help_lists_every_command():
    done = testbed("--help")
    assert done.exit_code == 0
    for command in ("run", "watch", "report", "doctor", "clean", "schemes", "topologies"):
        assert command in done.stdout


def test_the_schemes_are_listed_as_json_and_as_a_table():
    rows = json.loads(testbed("schemes", "--json").stdout)
    assert {"none", "fp16", "topk"} <= {row["scheme"].split("-")[0] for row in rows}
    assert all(row["summary"] for row in rows)
    table = testbed("schemes").stdout
    assert all(row["scheme"] in table for row in rows)


def test_the_topologies_are_listed_as_json():
    rows = json.loads(testbed("topologies", "--json").stdout)
    assert [row["kind"] for row in rows] == ["star", "dumbbell", "leafspine"]
    assert "bottleneck" in rows[1]["summary"]


@pytest.mark.parametrize(("euid", "able"), [(0, True), (1000, False)])
def test_the_quick_doctor_measures_nothing_and_prints_json(monkeypatch, euid, able):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(machine, "missing_packages", list)
    monkeypatch.setattr(machine, "trial", lambda *_: pytest.fail("measured"))
    for name in ("_dataset", "_docker", "_gpu", "_congestion_control"):
        monkeypatch.setattr(doctor, name, lambda name=name: Finding(name, "ok", None, ""))
    done = testbed("doctor", "--quick", "--json")
    answer = json.loads(done.stdout)
    assert answer["able"] is able
    assert done.exit_code == (0 if able else 1)
    assert {"name", "state", "value", "text", "remedy"} == set(answer["findings"][0])
    assert {finding["name"]: finding["state"] for finding in answer["findings"]}["root"] == ("ok" if able else "lacking")


def test_the_doctors_table_has_the_remedies(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda measure, tell: [Finding("root", "lacking", False, "not root", "run with sudo")])
    done = testbed("doctor")
    assert done.exit_code == 1
    assert "run with sudo" in done.stdout


def test_a_bad_experiment_file_is_told_by_line_and_creates_nothing(tmp_path):
    (tmp_path / "bad.yaml").write_text(GOOD.replace("10mbit", "10furlongs") + "seeed: 3\n")
    done = testbed("run", "bad.yaml")
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["bad.yaml:2", "bad.yaml:5"]
    assert "did you mean 'seed'?" in lines[1]
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_a_missing_experiment_file_is_told_in_a_sentence(tmp_path):
    done = testbed("run", "none.yaml")
    assert (done.exit_code, done.stderr.strip()) == (2, "none.yaml: cannot be read: no such file or directory")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_bad_input_and_creates_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "missing_packages", list)
    (tmp_path / "good.yaml").write_text(GOOD)
    done = testbed("run", "good.yaml")
    assert done.exit_code == 2
    assert "run it with sudo" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


def test_the_options_reach_the_runner(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: None)
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: seen.append(options) or tmp_path)
    assert testbed("run", "good.yaml", "--results", "there", "--share", "--force", "--resume").exit_code == 0
    assert testbed("run", "good.yaml").exit_code == 0
    assert (str(seen[0].results), seen[0].share, seen[0].force, seen[0].resume) == ("there", True, True, True)
    assert (str(seen[1].results), seen[1].share, seen[1].force, seen[1].resume) == ("results", False, False, False)


@pytest.mark.parametrize(("statuses", "code"), [(["valid", "valid"], 0), (["valid", "failed"], 1), (["valid", "invalid"], 3)])
def test_a_failed_or_invalid_run_among_the_others_is_told_by_the_exit_code(monkeypatch, tmp_path, statuses, code):
    for number, status in enumerate(statuses):
        (tmp_path / f"run{number}").mkdir()
        write_json(
            tmp_path / f"run{number}" / "manifest.json",
            {"status": "failed" if status == "failed" else "complete", "valid": status == "valid"},
        )
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: None)
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: tmp_path)
    assert testbed("run", "good.yaml").exit_code == code


@pytest.mark.parametrize("how", [KeyboardInterrupt, runner.Interrupted])
def test_an_interrupted_experiment_says_how_to_go_on(monkeypatch, how):
    def interrupted(file, options, console):
        raise how

    monkeypatch.setattr(runner, "run_experiment", interrupted)
    done = testbed("run", "good.yaml")
    assert done.exit_code == 130
    assert "--resume" in done.stderr


def test_a_report_of_a_missing_folder_is_bad_input_told_in_one_sentence(tmp_path):
    done = testbed("report", "nowhere", "--json")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_cleaning_tells_what_it_did_or_that_there_was_nothing(tmp_path):
    assert testbed("clean").stdout.strip() == "nothing to clean"
    run = tmp_path / "results" / "quick" / "none"
    run.mkdir(parents=True)
    write_json(run / "manifest.json", {"status": "running", "runner": {**this_process(), "started": 1}})
    assert "results/quick/none: marked as failed" in testbed("clean").stdout
    assert testbed("clean").stdout.strip() == "nothing to clean"
