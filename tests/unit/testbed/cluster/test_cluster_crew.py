"""Rank 0's way to all ranks: who is blamed for a failed run, and what happens to the others. The workers are pretended."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch.distributed as dist
from crews import machines

from testbed.cluster import crew as module
from testbed.cluster.crew import Crew, RankLost, RunFailed, cause_of
from testbed.cluster.follower import answer_name, cease_name, file_name, order_name
from testbed.cluster.launch import Launch
from testbed.cluster.mailbox import Mailbox
from testbed.errors import Refusal
from testbed.record import RunFolder, read_lines

JOB = {"run": "none", "timeout_s": 120.0}


def end(code, ceased=False, files=()):
    return {"code": code, "error": "no torch" if code is None else None, "files": list(files), "ceased": ceased}


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        ({0: end(0), 1: end(0)}, None),
        ({0: end(1), 1: end(-9)}, 1),  # killed from outside: the other only missed it
        ({1: end(1), 0: end(1)}, 1),  # the first to be heard of
        ({1: end(None), 0: end(-9, ceased=True)}, 1),
        ({0: end(-11), 1: end(-9, ceased=True)}, 0),
    ],
)
def test_a_signal_from_outside_is_to_blame_else_the_first_that_failed(ends, cause):
    assert cause_of(ends) == cause


class PretendedStation:
    """Its worker ends by itself with a code, or not before it is killed."""

    def __init__(self, code):
        self.code, self.killed = code, False

    def poll(self, timeout_s=0.0):
        return -9 if self.killed else self.code

    def end(self):
        self.killed = self.killed or self.code is None


class PretendedMember:
    """Rank 0 of three."""

    def __init__(self, code, fault=None):
        self.launch = Launch(0, 3, 1, 3, "node1", 29500)
        self.station, self.fault = PretendedStation(code), fault

    def start(self, job, alone, run_dir, log):
        self.started = job
        if self.fault is not None:
            raise self.fault
        log.write_text("".join(f"line {i}\n" for i in range(20)))
        events = [{"mono_s": 1000.0, "kind": "measured_start", "text": "", "data": {}}]
        (run_dir / "stream" / "events-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


class PretendedRun:
    """A crew whose other ranks have answered the order to run before it is given."""

    def __init__(self, tmp_path, answers, **member):
        self.mailbox = Mailbox(dist.HashStore())
        self.folder = RunFolder(tmp_path / "none", {})
        self.member = PretendedMember(**member)
        self.crew = Crew(self.member, self.mailbox)
        self.crew.machines = machines(3)
        for rank, answer in answers.items():
            files = {
                f"logs/worker-{rank}.log": f"rank {rank} says no\n",
                f"stream/events-{rank}.jsonl": json.dumps({"mono_s": 5.0, "kind": "measured_start", "text": "", "data": {}}) + "\n",
                f"stream/steps-{rank}.jsonl": json.dumps({"mono_s": 5.5, "rank": rank}) + "\n",
            }
            for path, text in files.items():
                self.mailbox.send(file_name(0, rank, path), text.encode())
            self.mailbox.post(answer_name(0, rank), {**answer, "files": sorted(files)})

    def __call__(self):
        self.crew.run(JOB, self.folder, lambda: None)


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(module, "TICK_S", 0.0)
    monkeypatch.setattr(module, "CEASE_PATIENCE_S", 0.3)
    monkeypatch.setattr(module, "HAND_IN_PATIENCE_S", 0.3)


def test_what_all_ranks_left_is_brought_together_on_rank_0s_clock(tmp_path):
    run = PretendedRun(tmp_path, {1: end(0), 2: end(0)}, code=0)
    run()
    order = run.mailbox.read(order_name(0))
    assert (order["do"], order["alone"], order["job"]["run"]) == ("run", [0, 1, 2], "none")
    assert order["job"]["store_prefix"] == run.member.started["store_prefix"] != ""
    assert [read_lines(run.folder.stream / f"steps-{rank}.jsonl") for rank in (1, 2)] == [[{"mono_s": 1000.5, "rank": r}] for r in (1, 2)]
    assert (run.folder.logs / "worker-2.log").read_text() == "rank 2 says no\n"
    assert not run.mailbox.has(cease_name(0))


def test_a_worker_killed_elsewhere_is_told_with_its_log_and_the_others_are_ended(tmp_path):
    run = PretendedRun(tmp_path, {1: end(1), 2: end(-9)}, code=None)
    with pytest.raises(RunFailed, match=r"the worker of rank 2 on node3 was killed by signal 9; its last lines:\nrank 2 says no") as caught:
        run()
    assert not isinstance(caught.value, RankLost)
    assert run.member.station.killed
    assert run.mailbox.has(cease_name(0))
    assert [event["text"] for event in read_lines(run.folder.stream / "events-runner.jsonl")] == ["worker 2 was killed by signal 9"]


def test_rank_0s_own_failure_is_told_with_the_end_of_its_log(tmp_path):
    run = PretendedRun(tmp_path, {1: end(-9, ceased=True), 2: end(1)}, code=3)
    with pytest.raises(RunFailed, match=r"the worker of rank 0 on node1 ended with code 3; its last lines:\nline 8\n"):
        run()


@pytest.mark.parametrize("code", [0, 1, None])
def test_a_rank_that_is_not_heard_of_any_more_is_lost(tmp_path, code):
    run = PretendedRun(tmp_path, {1: end(0 if code == 0 else 1)}, code=code)
    with pytest.raises(RankLost, match="no word from rank 2 on node3"):
        run()
    assert (run.folder.logs / "worker-1.log").exists()  # what there is, is there


def test_a_worker_that_cannot_be_started_ends_everything(tmp_path):
    run = PretendedRun(tmp_path, {}, code=None, fault=RuntimeError("workloads.nursery ended with code 1"))
    with pytest.raises(RankLost, match=r"rank 0 on node1 could not start its worker: workloads\.nursery ended with code 1"):
        run()


def test_a_rank_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_PATIENCE_S", 0.0)
    run = PretendedRun(tmp_path, {}, code=None)
    run.member.meet = lambda: {"address": "10.0.0.1"}
    run.mailbox.post(answer_name(0, 1), {"address": "10.0.0.2"})
    with pytest.raises(Refusal, match="rank 2 did not answer within 0 s: see what its torchrun says"):
        run.crew.gather([], 1)


def test_every_rank_is_asked_where_it_is_then_told_its_peers(tmp_path):
    run = PretendedRun(tmp_path, {}, code=None)
    first, *others = machines(3)
    run.member.meet = lambda: {"address": "127.0.1.1"}
    run.member.look = lambda peers, datasets, threads: first
    for rank, one in enumerate(others, 1):
        run.mailbox.post(answer_name(0, rank), {"address": one.address})
        run.mailbox.post(answer_name(1, rank), asdict(one))
    assert run.crew.gather([("cifar10", "/data")], 2) == machines(3)
    look = run.mailbox.read(order_name(1))
    assert look == {"do": "look", "peers": ["10.0.0.2", "10.0.0.3"], "datasets": [["cifar10", "/data"]], "threads": 2}
    run.crew.dismiss()
    assert run.mailbox.read(order_name(2)) == {"do": "end"}
