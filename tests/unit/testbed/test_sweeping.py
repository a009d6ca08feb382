"""A sweep: goes on by itself, tries what fails once more, stops for nothing but a full disk, and loses nothing to a kill."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from pretended import BASE, PretendedExperiment, make_able

from testbed import runner
from testbed.emulation.backend import RunFailed
from testbed.errors import DiskFull, Refusal
from testbed.forecast import ASSUMED_OVERHEAD_S
from testbed.planning import Options, plan_experiment
from testbed.processes import this_process
from testbed.record import RunFolder, read_json, write_json

SWEPT = {**BASE, "sweep": {"topology.bottleneck.rate": ["10mbit", "20mbit"]}}
RUNS = ["none_rate-10mbit", "fp16_rate-10mbit", "none_rate-20mbit", "fp16_rate-20mbit"]
DIED = RunFailed("worker 2 was killed by signal 9")


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    make_able(monkeypatch, tmp_path)
    made = PretendedExperiment(tmp_path, monkeypatch)
    made.write(**SWEPT)
    return made


def sweep(experiment, **options) -> list[str]:
    """Sweep, and return what was run by it."""
    experiment.executed.clear()
    experiment.run(sweep=True, **options)
    return list(experiment.executed)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_command_again_runs_nothing_and_changes_no_run(experiment):
    assert sweep(experiment) == RUNS
    before = files(experiment.folder)
    assert sweep(experiment) == []
    assert files(experiment.folder) == before
    assert [path.name for path in experiment.results.iterdir()] == ["small"]
    assert experiment.output.getvalue().count("already there") == 4


def test_a_failed_run_is_tried_once_more_and_the_rest_is_done(experiment):
    experiment.faults[RUNS[0]] = [DIED, None]
    experiment.faults[RUNS[2]] = [DIED, DIED]
    assert sweep(experiment) == [RUNS[0], RUNS[0], RUNS[1], RUNS[2], RUNS[2], RUNS[3]]
    saved = experiment.manifest(RUNS[0])
    assert (saved["status"], len(saved["earlier_attempts"])) == ("complete", 1)
    assert experiment.manifest(RUNS[0], "earlier")["reason"] == str(DIED)
    assert experiment.manifest(RUNS[2])["status"] == "failed"


def test_a_repeat_has_to_leave_time_for_what_is_due_and_else_is_left_to_the_next_command(experiment):
    experiment.verdicts = {RUNS[0]: [["late"], []], RUNS[3]: [["late"], []]}
    four_runs_s, end_s = 4 * (20 + ASSUMED_OVERHEAD_S), time.monotonic()
    assert sweep(experiment, repeats_end_s=end_s + four_runs_s - 5) == [*RUNS, RUNS[3]]  # the last one leaves nothing waiting
    assert "not repeated for want of time" in experiment.output.getvalue()
    assert not experiment.manifest(RUNS[0])["valid"] and experiment.manifest(RUNS[3])["valid"]
    assert sweep(experiment, repeats_end_s=end_s) == [RUNS[0]]
    assert experiment.manifest(RUNS[0])["valid"]


def test_with_time_enough_a_run_is_repeated_at_once(experiment):
    experiment.verdicts = {RUNS[0]: [["late"], []]}
    assert sweep(experiment, repeats_end_s=time.monotonic() + 600) == [RUNS[0], *RUNS]


def test_what_failed_twice_is_left_said_and_done_again_only_when_asked(experiment):
    experiment.faults[RUNS[1]] = [DIED, DIED, None]
    sweep(experiment)
    assert sweep(experiment) == []
    assert "failed twice and left" in experiment.output.getvalue()
    assert sweep(experiment, retry=True) == [RUNS[1]]
    assert experiment.manifest(RUNS[1])["status"] == "complete"
    assert [one["attempt"] for one in experiment.manifest(RUNS[1])["earlier_attempts"]] == [1, 2]


def test_a_failure_counts_over_commands(experiment, monkeypatch):
    experiment.faults[RUNS[0]] = [DIED, KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        sweep(experiment)
    assert experiment.manifest(RUNS[0])["cut_short"]
    experiment.faults[RUNS[0]] = [DIED, None]
    assert sweep(experiment) == RUNS
    assert experiment.manifest(RUNS[0])["status"] == "failed"
    assert len(experiment.manifest(RUNS[0])["earlier_attempts"]) == 1


def test_a_fault_of_our_own_fails_one_run_and_is_kept_for_us(experiment):
    experiment.faults[RUNS[0]] = [KeyError("steps"), KeyError("steps")]
    assert sweep(experiment) == [RUNS[0], *RUNS]
    assert experiment.manifest(RUNS[0])["reason"] == "KeyError: 'steps'"
    assert "Traceback" in (experiment.folder / RUNS[0] / "logs" / "runner.log").read_text()


def test_outside_a_sweep_a_fault_of_our_own_is_not_hidden(experiment):
    experiment.fault = KeyError("steps")
    with pytest.raises(KeyError):
        experiment.run()


def test_a_run_that_was_not_faithful_twice_is_finished(experiment):
    experiment.verdicts[RUNS[0]] = [["slow"], ["slow"], []]
    assert sweep(experiment) == [RUNS[0], *RUNS]
    assert sweep(experiment) == []
    assert sweep(experiment, retry=True) == []


def test_another_version_of_the_experiment_is_refused_with_the_remedy_and_nothing_changes(experiment):
    sweep(experiment)
    before = files(experiment.results)
    experiment.write(**{**SWEPT, "seed": 2})
    with pytest.raises(Refusal, match="move that folder away or give the experiment another name"):
        sweep(experiment)
    with pytest.raises(Refusal, match="move that folder away"):
        plan_experiment(experiment.file, Options(experiment.results, sweep=True))
    assert files(experiment.results) == before
    assert experiment.executed == []


def test_a_run_that_another_process_is_at_is_let_be(experiment):
    sweep(experiment)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        fields = (f"/proc/{other.pid}/stat", this_process()["boot"])
        with open(fields[0]) as file:
            started = int(file.read().rpartition(")")[2].split()[19])
        path = experiment.folder / RUNS[2] / "manifest.json"
        write_json(path, {**read_json(path), "status": "running", "runner": {"pid": other.pid, "started": started, "boot": fields[1]}})
        assert sweep(experiment) == []
        assert "another process is at it" in experiment.output.getvalue()
    finally:
        other.communicate()
    assert sweep(experiment) == [RUNS[2]]


def killed(experiment, monkeypatch, target, name, number):
    """Sweep in a process that is killed by SIGKILL when it calls `target.name` for the `number`th time."""
    child = os.fork()
    if child == 0:
        calls, real = [], getattr(target, name)

        def kill(*arguments, **more):
            calls.append(name)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        setattr(target, name, kill)
        try:
            sweep(experiment)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("target", "name", "number", "finished"),
    [
        (runner, "describe", 1, 0),
        (runner.backend, "execute", 1, 0),
        (runner.backend, "execute", 3, 2),
        (RunFolder, "to_parquet", 2, 1),
        (RunFolder, "save", 4, 1),  # before the second run's manifest says `complete`
        (RunFolder, "drop_stream", 2, 2),  # after it
    ],
)
def test_after_a_kill_the_same_command_does_the_rest_and_nothing_twice(experiment, monkeypatch, target, name, number, finished):
    killed(experiment, monkeypatch, target, name, number)
    before = {run: files(experiment.folder / run) for run in RUNS[:finished]}
    plan = plan_experiment(experiment.file, Options(experiment.results, sweep=True))
    assert len(plan.in_state("done")) == finished
    assert sweep(experiment) == RUNS[finished:]
    assert {run: files(experiment.folder / run) for run in RUNS[:finished]} == before
    assert all(experiment.manifest(run)["status"] == "complete" for run in RUNS)
    assert not any(experiment.manifest(run)["earlier_attempts"] for run in RUNS)


def test_a_kill_between_two_attempts_costs_the_run_no_more_than_the_first(experiment, monkeypatch):
    experiment.faults[RUNS[0]] = [DIED]
    killed(experiment, monkeypatch, runner.backend, "execute", 2)
    experiment.faults[RUNS[0]] = [DIED, None]
    assert sweep(experiment) == RUNS
    assert experiment.manifest(RUNS[0])["status"] == "failed"


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("name", "where"), [("to_parquet", RunFolder), ("event", RunFolder), ("execute", runner.backend), ("describe", runner)]
)
def test_a_full_disk_stops_the_sweep_with_a_sentence_and_leaves_what_was_finished_whole(experiment, monkeypatch, name, where):
    experiment.faults[RUNS[1]] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        sweep(experiment)
    before = files(experiment.folder / RUNS[0])
    with monkeypatch.context() as patched:
        patched.setattr(where, name, full)
        with pytest.raises(DiskFull, match=r"the disk of .*results/small is full \(.* MB free\)") as caught:
            sweep(experiment)
    assert len(str(caught.value).splitlines()) == 1
    assert len(experiment.executed) <= 1
    assert files(experiment.folder / RUNS[0]) == before
    assert sweep(experiment) == RUNS[1:]


def test_a_disk_too_full_even_to_say_so_leaves_the_manifest_whole(experiment, monkeypatch):
    with monkeypatch.context() as patched:
        real = RunFolder.save
        patched.setattr(RunFolder, "save", lambda record, **changes: full() if changes else real(record))
        with pytest.raises(DiskFull):
            sweep(experiment)
    assert experiment.manifest(RUNS[0])["status"] == "running"
    assert sweep(experiment) == RUNS


def test_a_worker_that_met_the_full_disk_stops_the_sweep_too(experiment):
    experiment.fault = RunFailed("worker 1 ended with code 1; its last lines:\nOSError: [Errno 28] No space left on device")
    with pytest.raises(DiskFull):
        sweep(experiment)
    assert experiment.executed == RUNS[:1]
    experiment.fault = None
    assert sweep(experiment) == RUNS


def test_the_time_left_over_the_whole_sweep_is_told(experiment):
    sweep(experiment)
    assert f"{RUNS[0]:24s} starting  (all: about 2 min left)" in experiment.output.getvalue()


def test_one_run_alone_goes_into_the_shared_folder_and_touches_nothing_else(experiment):
    assert experiment.run(only=RUNS[2]) == experiment.folder
    assert experiment.executed == [RUNS[2]]
    described = (experiment.folder / "experiment.json").read_bytes()
    assert read_json(experiment.folder / "experiment.json")["planned"] == RUNS
    before = files(experiment.folder)
    experiment.run(only=RUNS[0])
    experiment.run(only=RUNS[0])
    assert experiment.executed == [RUNS[2], RUNS[0]]
    assert before.items() <= files(experiment.folder).items()
    assert (experiment.folder / "experiment.json").read_bytes() == described
    assert [path.name for path in experiment.results.iterdir()] == ["small"]
    assert sweep(experiment) == [RUNS[1], RUNS[3]]


def test_one_run_alone_has_two_attempts(experiment):
    experiment.fault = DIED
    experiment.run(only=RUNS[0])
    experiment.run(only=RUNS[0])
    assert experiment.executed == [RUNS[0]] * 2


def test_one_run_alone_of_another_version_or_of_no_such_name_is_refused(experiment):
    with pytest.raises(Refusal, match=r"no run 'none_rate-15mbit': did you mean none_rate-10mbit"):
        experiment.run(only="none_rate-15mbit")
    assert not experiment.results.exists()
    experiment.run(only=RUNS[0])
    experiment.write(**{**SWEPT, "seed": 2})
    with pytest.raises(Refusal, match="another version"):
        experiment.run(only=RUNS[1])


def test_one_run_alone_may_find_a_folder_that_another_machine_is_just_making(experiment):
    experiment.folder.mkdir(parents=True)
    experiment.run(only=RUNS[0])
    assert experiment.manifest(RUNS[0])["status"] == "complete"
    assert read_json(experiment.folder / "experiment.json")["planned"] == RUNS
