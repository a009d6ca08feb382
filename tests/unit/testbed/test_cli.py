"""The command line: JSON for machines, sentences on the error output, and exit codes that tell bad input from failed runs."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass

import pandas as pd
import pytest
from rich.text import Text
from typer.testing import CliRunner

import analysis
from analysis.report import Report
from testbed import cli, doctor, machine, runner
from testbed.doctor import Finding
from testbed.errors import DiskFull, Interrupted
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
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
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


@pytest.mark.parametrize("command", ["run", "sweep", "reproduce", "watch", "report", "doctor", "clean", "schemes", "topologies"])
def test_every_command_explains_itself(command):
    done = testbed(command, "--help")
    assert done.exit_code == 0
    assert f"testbed {command}" in done.stdout


def test_help_lists_every_command():
    done = testbed("--help")
    assert done.exit_code == 0
    for command in ("run", "sweep", "reproduce", "watch", "report", "doctor", "clean", "schemes", "topologies"):
        assert command in done.stdout


def test_the_schemes_are_listed_as_json_and_as_a_table():
    rows = json.loads(testbed("schemes", "--json").stdout)
    assert {"none", "fp16", "topk"} <= {row["scheme"].split("-")[0] for row in rows}
    assert all(row["summary"] for row in rows)
    table = testbed("schemes").stdout
    assert all(row["scheme"] in table for row in rows)


def test_the_topologies_are_listed_as_json():
    rows = json.loads(testbed("topologies", "--json").stdout)
    assert [row["kind"] for row in rows] == ["star", "dumbbell", "leafspine", "machines"]
    assert "bottleneck" in rows[1]["summary"]


@pytest.mark.parametrize(("euid", "able"), [(0, True), (1000, False)])
def test_the_quick_doctor_measures_nothing_and_prints_json(monkeypatch, euid, able):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr(machine, "missing_packages", list)
    monkeypatch.setattr(machine, "trial", lambda *_: pytest.fail("measured"))
    for name in ("_dataset", "_gpu", "_congestion_control"):
        monkeypatch.setattr(doctor, name, lambda name=name: Finding(name, "ok", None, ""))
    monkeypatch.setattr(doctor, "_docker", lambda: iter([Finding("docker", "absent", None, "")]))
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


@pytest.mark.parametrize("how", [KeyboardInterrupt, Interrupted])
def test_an_interrupted_experiment_says_how_to_go_on(monkeypatch, how):
    def interrupted(file, options, console):
        raise how

    monkeypatch.setattr(runner, "run_experiment", interrupted)
    done = testbed("run", "good.yaml")
    assert done.exit_code == 130
    assert "--resume" in done.stderr


def test_a_dry_run_needs_no_root_prints_the_plan_and_creates_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "good.yaml").write_text(GOOD)
    done = testbed("sweep", "good.yaml", "--dry-run")
    assert done.exit_code == 0
    assert "small: 1 cell x 1 scheme x 1 repeat = 1 run, into results/small" in done.stdout
    assert "0 done, 1 to do" in done.stdout
    plan = json.loads(testbed("sweep", "good.yaml", "--dry-run", "--json", "--results", "there").stdout)
    assert (plan["folder"], plan["to_do"], plan["estimated_s"]) == ("there/small", 1, 32.0)
    assert [path.name for path in tmp_path.iterdir()] == ["good.yaml"]


def test_a_sweep_over_an_unknown_field_is_told_by_line(tmp_path):
    (tmp_path / "bad.yaml").write_text(GOOD + "sweep: {topology.link.rat: [1mbit]}\n")
    done = testbed("sweep", "bad.yaml", "--dry-run")
    assert done.exit_code == 2
    assert done.stderr.startswith("bad.yaml:5: ")


def test_a_sweep_is_planned_run_and_reported(monkeypatch, tmp_path):
    seen = []
    (tmp_path / "good.yaml").write_text(GOOD)
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: seen.append(folder))
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: seen.append(options) or tmp_path)
    assert testbed("sweep", "good.yaml", "--retry", "--share", "--force").exit_code == 0
    options, folder = seen
    assert (options.sweep, options.retry, options.share, options.force, options.only) == (True, True, True, True, None)
    assert folder == tmp_path


def test_an_interrupted_sweep_and_a_full_disk_are_told_in_a_sentence(monkeypatch, tmp_path):
    (tmp_path / "good.yaml").write_text(GOOD)
    for error, code, words in (
        (KeyboardInterrupt(), 130, "the same command goes on"),
        (DiskFull("the disk is full"), 1, "the disk is full"),
    ):

        def stopped(file, options, console, error=error):
            raise error

        monkeypatch.setattr(runner, "run_experiment", stopped)
        done = testbed("sweep", "good.yaml")
        assert (done.exit_code, len(done.stderr.strip().splitlines())) == (code, 1)
        assert words in done.stderr


def test_a_disk_too_full_for_the_report_is_told_in_a_sentence(monkeypatch, tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(analysis, "write_report", full)
    done = testbed("report", str(tmp_path))
    assert (done.exit_code, len(done.stderr.strip().splitlines())) == (1, 1)
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize(("status", "valid", "code"), [("complete", True, 0), ("complete", False, 3), ("failed", False, 1)])
def test_one_run_alone_has_its_own_exit_code_and_no_report(monkeypatch, tmp_path, status, valid, code):
    for name, manifest in (("mine", {"status": status, "valid": valid, "reason": None}), ("other", {"status": "running", "valid": False})):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", manifest)
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: pytest.fail("reported"))
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: tmp_path)
    done = testbed("run", "good.yaml", "--only", "mine", "--json")
    assert done.exit_code == code
    assert json.loads(done.stdout) == {"folder": str(tmp_path), "run": "mine", "status": status, "valid": valid, "reason": None}


def test_without_a_report_the_runs_are_told_as_json(monkeypatch, tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", {"status": "complete", "valid": True})
    monkeypatch.setattr(cli, "_report", lambda folder, as_json: pytest.fail("reported"))
    monkeypatch.setattr(runner, "run_experiment", lambda file, options, console: tmp_path)
    done = testbed("run", "good.yaml", "--no-report", "--json")
    runs = [{"run": name, "status": "complete", "valid": True} for name in ("one", "other")]
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"folder": str(tmp_path), "runs": runs})


def test_a_report_of_a_missing_folder_is_bad_input_told_in_one_sentence(tmp_path):
    done = testbed("report", "nowhere", "--json")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "nowhere" in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_report_says_which_figures_were_not_drawn(monkeypatch, tmp_path):
    report = Report([], [], {"backlog": "no queue", "heatmap_speedup": "no sweep", "heatmap_winner": "no sweep"}, pd.DataFrame())
    monkeypatch.setattr(analysis, "write_report", lambda folder: report)
    lines = testbed("report", str(tmp_path)).stdout.splitlines()
    assert [line for line in lines if line.startswith("not drawn")] == [
        "not drawn: backlog: no queue",
        "not drawn: heatmap_speedup, heatmap_winner: no sweep",
    ]
    assert json.loads(testbed("report", str(tmp_path), "--json").stdout)["not_drawn"] == report.skipped


def test_cleaning_tells_what_it_did_or_that_there_was_nothing(tmp_path):
    assert testbed("clean").stdout.strip() == "nothing to clean"
    run = tmp_path / "results" / "quick" / "none"
    run.mkdir(parents=True)
    write_json(run / "manifest.json", {"status": "running", "runner": {**this_process(), "started": 1}})
    assert "results/quick/none: marked as failed" in testbed("clean").stdout
    assert testbed("clean").stdout.strip() == "nothing to clean"


def test_cleaning_that_may_not_ask_the_engine_does_what_else_there_is_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    run = tmp_path / "results" / "quick" / "none"
    run.mkdir(parents=True)
    write_json(run / "manifest.json", {"status": "running", "runner": {**this_process(), "started": 1}})
    done = testbed("clean")
    assert done.exit_code == 1
    assert "results/quick/none: marked as failed" in done.stdout
    assert "nothing to clean" not in done.stdout
    assert "were not looked for: DOCKER_HOST is tcp://192.0.2.1:2375" in done.stderr
    assert "unset it, or name a unix:// socket" in done.stderr
