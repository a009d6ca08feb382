"""How a job on real machines is started: torchrun's place for each rank, and the sentence that says what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed import cli
from testbed.cluster.launch import Launch

ROOT = Path(__file__).parents[4]
GOOD = """\
name: real
backend: cluster
topology: {kind: machines, workers: 4}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {steps: 5}}
schemes: [none]
"""
SENTENCE = (
    "backend: cluster is started by torchrun: give this on each of the 4 machines, HOST being one of them: torchrun --nnodes=4 "
    "--nproc-per-node=1 --rdzv-backend=c10d --rdzv-endpoint=HOST:29500 -m testbed.cluster real.yaml --results {results}"
)
SET_BY_TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESTBED_RESULTS", raising=False)
    (tmp_path / "real.yaml").write_text(GOOD)
    return tmp_path


def test_a_rank_knows_its_place_by_what_torchrun_set():
    assert Launch.from_environment(SET_BY_TORCHRUN) == Launch(3, 4, 2, 2, "node1", 29500)
    for name in SET_BY_TORCHRUN:
        assert Launch.from_environment({key: value for key, value in SET_BY_TORCHRUN.items() if key != name}) is None


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_command_line_refuses_with_the_command_to_give_instead(folder, command):
    done = CliRunner().invoke(cli.app, [command, "real.yaml", "--results", "there"])
    assert done.exit_code == 2
    assert done.stderr.strip() == SENTENCE.format(results="there")
    assert [path.name for path in folder.iterdir()] == ["real.yaml"]


def test_one_run_asked_for_is_in_that_command(folder):
    done = CliRunner().invoke(cli.app, ["run", "real.yaml", "--only", "none"])
    assert done.stderr.strip() == SENTENCE.format(results="results") + " --only none"


def test_the_plan_needs_no_torchrun(folder):
    done = CliRunner().invoke(cli.app, ["sweep", "real.yaml", "--dry-run"])
    assert done.exit_code == 0
    assert "0 done, 1 to do" in done.stdout


@pytest.fixture
def started(folder):
    """Start what torchrun would start, without torchrun; return it ended."""

    def started(*arguments):
        environment = {key: value for key, value in os.environ.items() if key not in SET_BY_TORCHRUN} | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "testbed.cluster", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
        )

    return started


def test_without_torchrun_a_rank_refuses_with_the_command(started, folder):
    done = started("real.yaml")
    assert (done.returncode, done.stderr.strip()) == (2, SENTENCE.format(results="results"))
    (folder / "real.yaml").write_text(
        GOOD.replace("cluster", "emulated").replace("{kind: machines, workers: 4}", "{kind: star, workers: 2, link: {rate: 1mbit}}")
    )
    assert started("real.yaml").stderr.strip() == "backend: emulated runs on one machine: use `testbed run`"
    (folder / "real.yaml").write_text(GOOD.replace("machines", "machine"))
    done = started("real.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("real.yaml:3: topology.kind: 'machine' is not possible; did you mean 'machines'?")


def test_nothing_of_the_emulation_is_imported(folder):
    code = "import sys, testbed.cluster.__main__; print([name for name in sys.modules if name.startswith(('mininet', 'os_ken'))])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
