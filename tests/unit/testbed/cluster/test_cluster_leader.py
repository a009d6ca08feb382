"""Rank 0 goes through the runs of an experiment, whose ranks are only pretended."""

from __future__ import annotations

import io
import json

import pytest
from crews import machines
from rich.console import Console

from testbed import machine
from testbed.cluster.crew import RankLost, RunFailed
from testbed.cluster.launch import Launch
from testbed.cluster.leader import Request, lead
from testbed.errors import Interrupted, Refusal
from testbed.record import read_json

EXPERIMENT = {
    "name": "real",
    "backend": "cluster",
    "topology": {"kind": "machines", "workers": 2},
    "workload": {"kind": "replay", "model": "resnet8", "compute": "60ms", "budget": {"steps": 1}},
    "schemes": ["none", "fp16"],
}


class PretendedCrew:
    """Two ranks that do a step each, unless a run has a fault; what they look for and run is noted."""

    def __init__(self):
        self.launch = Launch(0, 2, 1, 2, "node1", 29500)
        self.machines = []
        self.looked, self.jobs, self.faults = [], [], {}

    def gather(self, datasets, threads):
        self.looked.append((datasets, threads))
        self.machines = machines(2)
        return self.machines

    def run(self, job, folder, tick):
        self.jobs.append(job)
        tick()
        if fault := self.faults.get(job["run"]):
            raise fault
        for rank in (0, 1):
            step = {"mono_s": 8.0, "step": 0, "rank": rank, "compute_s": 0.1, "bytes_sent": 9, "bytes_received": 9, "wire_bytes_sent": 9}
            (folder.stream / f"steps-{rank}.jsonl").write_text(json.dumps(step) + "\n")
            worker = {"rank": rank, "steps": 1, "parameter_digest": "a", "quiet_compute_s": 0.1, "messages": 1}
            (folder.stream / f"worker-{rank}.json").write_text(json.dumps(worker))
        events = [{"mono_s": at_s, "kind": kind, "text": "", "data": {}} for at_s, kind in ((7.0, "measured_start"), (9.0, "measured_end"))]
        (folder.stream / "events-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


class Leading:
    """An experiment file, its results, and a crew."""

    def __init__(self, folder):
        self.file, self.results = folder / "real.yaml", folder / "results"
        self.write()
        self.crew = PretendedCrew()
        self.output = io.StringIO()

    def write(self, **changes):
        self.file.write_text(json.dumps({**EXPERIMENT, **changes}))

    def __call__(self, only=None):
        console = Console(file=self.output, width=200, force_terminal=False)
        folder, runs = lead(Request(self.file, self.results, only, 3, "torchrun ..."), self.crew, console)
        assert folder == self.results / "real"
        return [run.slug for run in runs]

    def manifest(self, run):
        return read_json(self.results / "real" / run / "manifest.json") or {}

    @property
    def statuses(self):
        return [self.manifest(run).get("status") for run in ("none", "fp16")]


@pytest.fixture
def leading(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "versions", dict)
    monkeypatch.setattr(machine, "git_commit", lambda: None)
    return Leading(tmp_path)


def test_every_run_is_ordered_once_in_the_order_of_the_plan(leading):
    assert leading() == ["none", "fp16"]
    assert leading.statuses == ["complete", "complete"]
    assert leading.crew.looked == [([], 3)]
    job = leading.crew.jobs[1]
    assert (job["run"], job["scheme"], job["world_size"], job["nice"]) == ("fp16", {"scheme": "fp16"}, 2, 0)
    assert (job["master_addr"], job["master_port"]) == ("node1", 29500)
    assert not {"rank", "interface", "run_dir"} & set(job)
    assert "rank 0 is on node1" in leading.output.getvalue()


def test_what_is_complete_is_passed_over_and_what_failed_is_done_again(leading):
    leading.crew.faults["none"] = RunFailed("worker 1 died")
    leading()
    assert leading.statuses == ["failed", "complete"]
    assert leading.manifest("none")["reason"] == "worker 1 died"
    leading.crew.faults.clear()
    leading()
    assert [job["run"] for job in leading.crew.jobs] == ["none", "fp16", "none"]
    assert leading.statuses == ["complete", "complete"]
    assert leading.manifest("none")["earlier_attempts"][0]["reason"] == "worker 1 died"


def test_one_run_can_be_asked_for(leading):
    assert leading("fp16") == ["fp16"]
    assert leading.statuses == [None, "complete"]
    with pytest.raises(Refusal, match="this experiment has no run 'fp8'"):
        leading("fp8")


@pytest.mark.parametrize(
    ("fault", "reason", "cut_short"),
    [
        (Interrupted("SIGTERM"), "ended from outside: another rank was lost, or the job was stopped", True),
        (RankLost("no word from rank 1 on node2"), "no word from rank 1 on node2", None),
        (ZeroDivisionError("ours"), "ZeroDivisionError: ours", None),
    ],
)
def test_what_nothing_can_follow_marks_the_run_and_ends_the_experiment(leading, fault, reason, cut_short):
    leading.crew.faults["none"] = fault
    with pytest.raises(type(fault)):
        leading()
    manifest = leading.manifest("none")
    assert (manifest["status"], manifest["reason"], manifest.get("cut_short")) == ("failed", reason, cut_short)
    assert leading.statuses == ["failed", None]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"topology": {"kind": "machines", "workers": 3}},
            r"none: topology.workers is 3 and torchrun started 2 ranks: give --nnodes and --nproc-per-node whose product is 3",
        ),
        (
            {"backend": "emulated", "topology": {"kind": "star", "workers": 2, "link": {"rate": "1mbit"}}},
            r"backend: emulated runs on one machine: use `testbed run`",
        ),
    ],
)
def test_what_these_ranks_cannot_do_is_refused_before_they_are_asked(leading, changes, sentence):
    leading.write(**changes)
    with pytest.raises(Refusal, match=sentence):
        leading()
    assert leading.crew.looked == []
    assert not leading.results.exists()


def test_machines_that_cannot_work_together_are_refused_and_nothing_is_created(leading, monkeypatch):
    monkeypatch.setattr("testbed.cluster.leader.refusals", lambda found: [f"{one.host} is odd" for one in found])
    with pytest.raises(Refusal, match="node1 is odd\nnode2 is odd"):
        leading()
    assert not leading.results.exists()


def test_a_folder_of_another_version_of_the_experiment_is_not_gone_on_with(leading):
    leading()
    leading.write(seed=2)
    with pytest.raises(Refusal, match="holds another version of this experiment: move that folder away"):
        leading()
