"""The Snakefile: every run of a sweep by itself, the report at the end, and failures that stop nothing; on a pretended network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pretended import BASE

from testbed.record import read_json
from tests.unit.testbed.cluster import quick_testbed

ROOT = Path(__file__).parents[3]
SNAKEFILE = ROOT / "experiments" / "cluster" / "Snakefile"
RUNS = ["none_rate-10mbit", "none_rate-20mbit"]


@pytest.fixture(scope="module")
def testbed(tmp_path_factory):
    """Return the text of a command that runs the testbed on a pretended network."""
    path = str(tmp_path_factory.mktemp("testbed") / "socket")
    with subprocess.Popen([sys.executable, "-m", quick_testbed.__name__, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "ready\n"
        yield quick_testbed.CLIENT.format(python=sys.executable, path=path)
        server.terminate()


@pytest.fixture
def snakemake(tmp_path, testbed):
    (tmp_path / "testbed").write_text(testbed)
    (tmp_path / "testbed").chmod(0o755)
    (tmp_path / "e.yaml").write_text(json.dumps({**BASE, "schemes": ["none"], "sweep": {"topology.bottleneck.rate": ["10mbit", "20mbit"]}}))

    def call(**environment):
        config = ["--config", "experiment=e.yaml", f"testbed={tmp_path / 'testbed'}"]
        command = [sys.executable, "-m", "snakemake", "-s", SNAKEFILE, *config, "--cores", "2", "--resources", "emulations=1", "-k"]
        return subprocess.run(command, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=200)

    return call


def statuses(tmp_path):
    return [(read_json(tmp_path / "results" / "small" / run / "manifest.json") or {}).get("status") for run in RUNS]


def test_every_run_is_done_once_and_the_report_written(snakemake, tmp_path):
    done = snakemake(INVALID=RUNS[1])  # a run that is not to be believed is a result like any other
    assert done.returncode == 0, done.stderr
    assert statuses(tmp_path) == ["complete"] * 2
    assert (tmp_path / "results" / "small" / "summary.csv").exists()
    again = snakemake()
    assert again.returncode == 0
    assert "starting" not in again.stdout + again.stderr


def test_a_run_that_fails_stops_neither_the_others_nor_the_report(snakemake, tmp_path):
    assert snakemake(FAILING=RUNS[0]).returncode != 0
    assert statuses(tmp_path) == ["failed", "complete"]
    assert (tmp_path / "results" / "small" / "summary.csv").exists()
    assert len(read_json(tmp_path / "results" / "small" / RUNS[0] / "manifest.json")["earlier_attempts"]) == 1
