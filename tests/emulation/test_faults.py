"""What goes wrong is told, kept and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.emulation.experiments import ROOT, command, look_at_machine, manifest, start, wait_until, workers_of, write_tiny

pytestmark = pytest.mark.usefixtures("emulation")

LONG_S = 120  # of training: none of these runs is left to end by itself


@pytest.fixture
def experiment(tmp_path):
    return write_tiny(tmp_path, seconds=LONG_S)


def is_training(folder):
    steps = folder / "none/stream/steps-0.jsonl"
    return len(workers_of(folder / "none")) == 2 and steps.exists() and steps.stat().st_size > 0


def nothing_is_left(before):
    wait_until(lambda: look_at_machine() == before, 5, f"the machine as it was, not {look_at_machine()}")


def launched_by(how, experiment):
    run = command(experiment)
    if how == "directly":
        return run
    if how == "by sudo":
        if shutil.which("sudo") is None:
            pytest.skip("sudo is not installed here")
        return ["sudo", "-n", "-E", *run]
    makefile = experiment.parent / "Makefile"
    makefile.write_text(f"run:\n\t@cd {ROOT} && {' '.join(run)}; true\n")  # a shell between make and us
    return ["make", "-f", str(makefile), "run"]


@pytest.mark.parametrize("how", ["directly", "by make", "by sudo"])
def test_kill_9_of_what_the_user_started_leaves_nothing(experiment, how):
    before = look_at_machine()
    folder = experiment.parent / "results" / "tiny"
    process = start(launched_by(how, experiment))
    wait_until(lambda: is_training(folder), 60, "workers training")
    assert look_at_machine() != before
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    nothing_is_left(before)
    assert manifest(folder, "none")["status"] == "running"  # never silently partial: nobody finished it
    done = subprocess.run(
        [sys.executable, "-m", "testbed", "clean", "--results", str(folder.parent)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert manifest(folder, "none")["status"] == "failed"
    assert (folder / "none/stream/steps-0.jsonl").stat().st_size > 0


def test_kill_9_while_the_network_boots_leaves_nothing(experiment):
    before = look_at_machine()
    folder = experiment.parent / "results" / "tiny"
    process = start(command(experiment))
    wait_until(lambda: (folder / "none/logs/nursery.log").exists(), 60, "the network booting")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    nothing_is_left(before)


def test_ctrl_c_keeps_what_was_recorded_and_leaves_nothing(experiment):
    before = look_at_machine()
    folder = experiment.parent / "results" / "tiny"
    process = start(command(experiment))
    wait_until(lambda: is_training(folder), 60, "workers training")
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "interrupted" in output
    nothing_is_left(before)
    told = manifest(folder, "none")
    assert (told["status"], told["valid"], told["reason"]) == ("failed", False, "interrupted by the user")
    assert (folder / "none/stream/steps-0.jsonl").stat().st_size > 0


def test_a_worker_that_dies_ends_the_run_with_its_reason_and_keeps_the_record(experiment):
    before = look_at_machine()
    folder = experiment.parent / "results" / "tiny"
    process = start(command(experiment))
    wait_until(lambda: is_training(folder), 60, "workers training")
    os.kill(workers_of(folder / "none")[1], signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "worker 1 was killed by signal 9" in output
    told = manifest(folder, "none")
    assert (told["status"], told["valid"]) == ("failed", False)
    assert "worker 1 was killed by signal 9" in told["reason"]
    assert (folder / "none/stream/steps-0.jsonl").stat().st_size > 0
    nothing_is_left(before)
