"""Sweeps on a real network: the Snakefile's two cells, and a sweep that is killed in the middle and goes on."""

import os
import signal
import subprocess
import sys

import pytest

from tests.emulation.experiments import COMPLETE, ROOT, look_at_machine, manifest, start, wait_until

pytestmark = pytest.mark.usefixtures("emulation")

RUNS = ["none_rate-10mbit", "none_rate-20mbit"]
SWEPT = """
name: swept
topology: {kind: star, workers: 2, link: {rate: 10mbit, delay: 2ms}}
workload: {kind: replay, model: resnet8, compute: 20ms, budget: {seconds: 3}, warmup_steps: 1}
schemes: [none]
sweep: {topology.link.rate: [10mbit, 20mbit]}
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "swept.yaml"
    path.write_text(SWEPT)
    return path


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results" / "swept"


def contents(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def was_done_once(told):
    """Tell whether a run was done no more often than an unfaithful network asks for."""
    return told["status"] == "complete" and all(attempt["invalid_reasons"] for attempt in told["earlier_attempts"])


def test_the_snakefile_runs_two_cells_and_writes_the_report(experiment, results):
    before = look_at_machine()
    snakemake = [sys.executable, "-m", "snakemake", "-s", ROOT / "experiments/cluster/Snakefile"]
    config = ["--config", f"experiment={experiment}", f"testbed=env PYTHONPATH={ROOT} {sys.executable} -m testbed"]
    command = [*snakemake, *config, "--cores", "2", "--resources", "emulations=1"]
    done = subprocess.run(command, cwd=experiment.parent, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert all(was_done_once(manifest(results, run)) for run in RUNS)
    first, second = sorted((manifest(results, run) for run in RUNS), key=lambda told: told["started"])
    assert first["finished"] <= second["started"]
    assert not first["shared_machine"] and not second["shared_machine"]
    table = (results / "table.csv").read_text()
    assert all(run in table for run in RUNS)
    assert look_at_machine() == before


def test_after_kill_9_the_same_command_does_the_rest_and_nothing_twice(experiment, results):
    before = look_at_machine()
    command = [sys.executable, "-m", "testbed", "sweep", str(experiment), "--results", str(results.parent)]
    process = start(command)
    steps = results / RUNS[1] / "stream/steps-0.jsonl"
    wait_until(lambda: steps.exists() and steps.stat().st_size > 0, 120, "the second run training")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: look_at_machine() == before, 5, f"the machine as it was, not {look_at_machine()}")
    finished, recorded = contents(results / RUNS[0]), steps.read_bytes()
    assert manifest(results, RUNS[0])["status"] == "complete"
    assert manifest(results, RUNS[1])["status"] == "running"

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode in COMPLETE, done.stderr + done.stdout
    assert "1 done, 1 to do" in done.stdout
    assert contents(results / RUNS[0]) == finished
    assert was_done_once(manifest(results, RUNS[0])) and was_done_once(manifest(results, RUNS[1]))
    kept = list((results / RUNS[1]).rglob("stream/steps-0.jsonl"))  # what was recorded before the kill
    assert [path.read_bytes() for path in kept] == [recorded]
    assert all(run in (results / "table.csv").read_text() for run in RUNS)
    assert look_at_machine() == before
