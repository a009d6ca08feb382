"""Two ranks on the loopback, started by the real torchrun: a worker is killed, the same command goes on, a rank is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.record import read_json, read_lines
from workloads.datasets.fashion_mnist import FOLDER

ROOT = Path(__file__).parents[4]
LIMIT_S = 240
EXPERIMENT = """\
name: two
backend: cluster
topology: {kind: machines, workers: 2}
schemes: [none, topk-0.1]
sweep:
  workload:
    - {kind: replay, model: resnet8, compute: 20ms, budget: {steps: 150}, warmup_steps: 2}
    - {kind: train, model: small_cnn, dataset: fashion-mnist, optimizer: {name: sgd, lr: 0.05}, budget: {seconds: 1.5}, warmup_steps: 2,
       eval_every: 500ms, eval_samples: 200}
"""
KILLED, REPLAY, TRAININGS = "none_replay", "topk-0.1_replay", ["none_train", "topk-0.1_train"]
COMPLETE = [REPLAY, *TRAININGS]

installed = pytest.mark.skipif(not FOLDER.exists(), reason="needs the package dataset-fashion-mnist")


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def is_rank(pid: int, rank: int) -> bool:
    return f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@dataclass
class Job:
    """One torchrun in a folder of its own."""

    folder: Path
    log: Path
    process: subprocess.Popen[str]
    manifests: dict[str, Any] = field(default_factory=dict)  # at its end, by run

    @classmethod
    def start(cls, folder: Path) -> Job:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
        (folder / "tmp").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), "MPLCONFIGDIR": str(folder / "tmp")}
        # timeout asks torchrun to end, which then ends its ranks; killing torchrun would leave them behind
        command = ["timeout", str(LIMIT_S), *torchrun, "-m", "testbed.cluster", "two.yaml"]
        log = folder / f"output-{len(list(folder.iterdir()))}"
        with log.open("w") as output:
            return cls(folder, log, subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output, text=True))

    @property
    def results(self) -> Path:
        return self.folder / "results" / "two"

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def wait(self) -> int:
        """Return the exit code; from then on it is known what there was."""
        code = self.process.wait()
        self.manifests = {path.parent.name: read_json(path) or {} for path in self.results.glob("*/manifest.json")}
        return code

    def await_steps(self, run: str) -> None:
        """Wait until rank 0 has recorded a measured step of a run."""
        before = self.manifest(run).get("runner")
        while self.manifest(run).get("runner") == before or not read_lines(self.results / run / "stream" / "steps-0.jsonl"):
            assert self.process.poll() is None, self.printed
            time.sleep(0.05)

    def rank(self, rank: int) -> int:
        """Return the process that torchrun started for a rank."""
        (torchrun,) = children(self.process.pid)
        return next(pid for pid in children(torchrun) if is_rank(pid, rank))

    def worker(self, rank: int) -> int:
        """Return the process that does a rank's work."""
        (nursery,) = children(self.rank(rank))
        (worker,) = children(nursery)
        return worker

    def manifest(self, run: str) -> dict[str, Any]:
        return read_json(self.results / run / "manifest.json") or {}

    def table(self, run: str, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.results / run / f"{name}.parquet")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """All runs; in the first the worker of rank 1 is killed."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "two.yaml").write_text(EXPERIMENT)
    job = Job.start(folder)
    job.await_steps(KILLED)
    os.kill(job.worker(1), signal.SIGKILL)
    assert job.wait() == 1, job.printed
    return job


@pytest.fixture(scope="module")
def second(first):
    """The same command again; now rank 1 itself is killed, and torchrun ends the others."""
    job = Job.start(first.folder)
    job.await_steps(KILLED)
    os.kill(job.rank(1), signal.SIGKILL)
    assert job.wait() != 0
    return job


@installed
def test_a_killed_worker_fails_its_run_only_and_the_folder_says_so(first):
    failed = first.manifests[KILLED]
    assert (failed["status"], failed["valid"], failed["invalid_reasons"]) == ("failed", False, ["the run failed"])
    assert re.match(r"the worker of rank 1 on .* was killed by signal 9; its last lines:", failed["reason"])
    assert [first.manifests[run]["status"] for run in COMPLETE] == ["complete"] * 3


@installed
def test_the_manifest_tells_the_machines_and_claims_nothing_of_their_network(first):
    for manifest in (first.manifests[run] for run in COMPLETE):
        assert (manifest["backend"], manifest["valid"], manifest["substituted"]) == ("cluster", True, [])
        assert {manifest[key] for key in ("network", "fidelity", "prediction", "verification", "transport")} == {None}
        assert [(one["interface"], one["device"]) for one in manifest["machines"]] == [("lo", "cpu")] * 2
        assert all(one["host"] and one["versions"]["torch"] for one in manifest["machines"])
        assert [worker["rank"] for worker in manifest["workers"]] == [0, 1]
        assert len({worker["parameter_digest"] for worker in manifest["workers"]}) == 1
        assert manifest["notes"] == ["bytes on the wire are not told apart where ranks share an interface"]
        assert manifest["command"].startswith("torchrun --nnodes=1 --nproc-per-node=2 ")


@installed
def test_the_steps_of_all_ranks_are_there_on_one_clock(first):
    for run in COMPLETE:
        steps = first.table(run, "steps")
        zero, one = (steps[steps["rank"] == rank].set_index("step") for rank in (0, 1))
        assert list(zero.index) == list(one.index) == list(range(first.manifests[run]["workers"][0]["steps"]))
        assert zero["t_s"].iloc[0] == 0
        assert (one["t_s"] < zero["t_s"] + zero["step_s"].max()).all()  # nobody begins a step before the other has begun the last
        assert (one["t_s"] > zero["t_s"] - zero["step_s"].max()).all()
        assert steps["wire_bytes_sent"].isna().all()
        assert not (first.results / run / "stream").exists()
    assert len(first.table(REPLAY, "steps")) == 300


@installed
def test_a_budget_of_seconds_evaluates_and_ends_on_all_ranks_before_the_same_steps(first):
    for run in TRAININGS:
        steps, evals = first.table(run, "steps"), first.table(run, "evals")
        zero = steps[steps["rank"] == 0]
        longest_s = zero["step_s"].max()
        assert 1.5 - 2 * longest_s <= zero["train_s"].max() <= 1.5 + 3 * longest_s
        assert len(evals) >= 3
        assert list(evals["final"]) == [False] * (len(evals) - 1) + [True]


@installed
def test_the_same_figures_are_drawn_and_what_is_lacking_is_said(first):
    assert re.search(r"not drawn: backlog.*: the queues between real machines are not sampled", first.printed)
    assert {path.stem for path in (first.results / "figures").glob("*.png")} >= {"accuracy_time", "throughput", "bytes_step", "overview"}
    summary = pd.read_csv(first.results / "summary.csv").set_index("run")
    assert set(summary.index) == {KILLED, *COMPLETE}
    assert list(summary.index[summary["valid"]]) == [run for run in summary.index if run != KILLED]
    assert summary["fidelity"].isna().all()
    assert list(summary.index[summary["final_accuracy"].notna()]) == TRAININGS


@installed
def test_the_same_command_goes_on_with_what_is_not_complete(first, second):
    assert [second.manifests[run] for run in COMPLETE] == [first.manifests[run] for run in COMPLETE]
    again = second.manifests[KILLED]
    assert again["started"] > first.manifests[KILLED]["started"]
    assert [attempt["status"] for attempt in again["earlier_attempts"]] == ["failed"]


@installed
def test_a_killed_rank_leaves_a_folder_that_says_so(second):
    manifest = second.manifests[KILLED]
    assert (manifest["status"], manifest["valid"], manifest["cut_short"]) == ("failed", False, True)
    assert manifest["reason"] == "ended from outside: another rank was lost, or the job was stopped"
    assert read_lines(second.results / KILLED / "stream" / "steps-0.jsonl")
