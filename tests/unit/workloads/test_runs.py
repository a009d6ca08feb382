"""Two workers over loopback, started by the nursery as the runner starts them."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from controller.board import Board, QueueInfo, QueueReading
from workloads.compression.topk import kept
from workloads.datasets.fashion_mnist import FOLDER
from workloads.exchange.plan import plan_allreduce
from workloads.exchange.ring import plan_ring
from workloads.job import Job
from workloads.models.sizes import layer_sizes
from workloads.pace import Slowdown, Slowdowns
from workloads.schemes import parse_scheme
from workloads.session import how_often

REPOSITORY = Path(__file__).parents[3]
WORLD = 2
FEW = "few"  # in place of a data_dir: the whole training set, but only so many test images for the evaluation every run ends with
SERVE = f"""
from workloads.nursery import Nursery
from dataclasses import replace
from workloads.datasets import load_dataset
from workloads.datasets.fashion_mnist import FOLDER
nursery = Nursery()
if FOLDER.exists():
    whole = load_dataset("fashion-mnist")
    few = replace(whole, test_images=whole.test_images[:500], test_labels=whole.test_labels[:500])
    nursery.datasets["fashion-mnist", {FEW!r}] = few
nursery.serve()
"""
installed = pytest.mark.skipif(not FOLDER.exists(), reason="needs the package dataset-fashion-mnist")


@dataclass
class NurseryClient:
    """The runner's end of a nursery."""

    process: subprocess.Popen[str]

    def ask(self, **request: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message


@pytest.fixture(scope="module")
def nursery() -> Iterator[NurseryClient]:
    process = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    client = NurseryClient(process)
    assert client.hear() == {"event": "ready"}
    if FOLDER.exists():
        client.ask(preload={"dataset": "fashion-mnist"})
        assert client.hear()["event"] == "preloaded"
    yield client
    assert process.stdin
    process.stdin.close()
    assert process.wait(timeout=20) == 0


@dataclass
class Outcome:
    """What a run left in its stream folder."""

    folder: Path

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "stream" / f"{name}.jsonl").read_text().splitlines()]

    def steps(self, rank: int) -> list[dict[str, Any]]:
        return self.rows(f"steps-{rank}")

    def workers(self) -> list[dict[str, Any]]:
        return [json.loads((self.folder / "stream" / f"worker-{rank}.json").read_text()) for rank in range(WORLD)]


def run(
    nursery: NurseryClient,
    folder: Path,
    scheme: str | dict[str, Any],
    workload: dict[str, Any],
    interface: str = "lo",
    telemetry: str = "",
    dilation: float = 1.0,
    slowdowns: tuple[list[dict[str, float]], ...] = ([], []),
) -> Outcome:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for rank in range(WORLD):
        path = folder / f"job-{rank}.json"
        job = Job("run", rank, WORLD, "127.0.0.1", port, interface, str(folder), 1, parse_scheme(scheme), workload, timeout_s=30)
        replace(job, telemetry=telemetry, dilation=dilation, slowdowns=slowdowns[rank]).save(path)
        nursery.ask(job=str(path), netns_pid=None, log=str(folder / f"worker-{rank}.log"))
    heard = [nursery.hear() for _ in range(2 * WORLD)]
    logs = "".join((folder / f"worker-{rank}.log").read_text() for rank in range(WORLD))
    assert sorted(m["event"] for m in heard) == ["exited"] * WORLD + ["started"] * WORLD
    assert [m["code"] for m in heard if m["event"] == "exited"] == [0] * WORLD, logs
    return Outcome(folder)


def training(**changes: Any) -> dict[str, Any]:
    work: dict[str, Any] = {"kind": "train", "model": "small_cnn", "dataset": "fashion-mnist", "data_dir": None, "batch_size": 32}
    work |= {"optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0}, "budget": {"steps": 40}}
    return work | {"eval_every_s": 1000.0, "eval_samples": 400, "warmup_steps": 2} | changes


def check_steps(outcome: Outcome) -> None:
    first, second = outcome.workers()
    assert first["parameter_digest"] == second["parameter_digest"]
    assert first["steps"] == second["steps"] == len(outcome.steps(0)) == len(outcome.steps(1))
    for rank in range(WORLD):
        clock = 0.0
        for number, row in enumerate(outcome.steps(rank)):
            assert (row["step"], row["rank"]) == (number, rank)
            assert row["step_s"] == row["compute_s"] + row["encode_s"] + row["exchange_s"] + row["decode_s"]
            assert min(row["compute_s"], row["exchange_s"]) > 0
            clock += row["step_s"]
            assert row["train_s"] == pytest.approx(clock)
            assert row["wire_bytes_sent"] >= row["bytes_sent"]
    kinds = [row["kind"] for row in outcome.rows("events-0")]
    assert kinds == ["started", "joined", "first_step", "warmup_done", "measured_start", "measured_end"]


@installed
@pytest.mark.parametrize("scheme", ["none", "fp16", "topk-0.1"])
def test_training_agrees_learns_and_counts_its_bytes(nursery: NurseryClient, tmp_path: Path, scheme: str) -> None:
    outcome = run(nursery, tmp_path, scheme, training())
    check_steps(outcome)
    rows = outcome.steps(0)
    elements = rows[0]["dense_bytes"] // 4
    expected = {
        "none": plan_allreduce(4 * elements, WORLD),
        "fp16": plan_allreduce(2 * elements, WORLD),
        "topk-0.1": plan_ring([24 + 8 * kept(elements, 0.1)] * WORLD, rank=0),
    }[scheme]
    assert {row["bytes_sent"] for row in rows} == {expected.bytes_sent}
    assert {row["ratio"] for row in rows} == {0.1 if scheme == "topk-0.1" else 1.0}
    assert (scheme == "none") == (max(row["encode_s"] + row["decode_s"] for row in rows) == 0)
    assert statistics.mean(r["loss"] for r in rows[-8:]) < 0.7 * statistics.mean(r["loss"] for r in rows[:4])
    initial, final = outcome.rows("evals")
    assert (initial["train_s"], initial["samples"], initial["final"]) == (0.0, 400, False)
    assert (final["step"], final["samples"], final["final"]) == (40, 10000, True)
    assert final["accuracy"] > initial["accuracy"] + 0.2
    assert outcome.workers()[0]["hyperparameters"]["lr"] == 0.05


@installed
def test_a_budget_of_seconds_with_evaluations_ends_all_ranks_together(nursery: NurseryClient, tmp_path: Path) -> None:
    work = training(data_dir=FEW, model="resnet8", batch_size=8, budget={"seconds": 1.0}, eval_every_s=0.3)
    outcome = run(nursery, tmp_path, "topk-0.01", work)
    check_steps(outcome)  # with batch normalisation: buffers are in the digest
    longest = max(row["step_s"] for row in outcome.steps(0))
    assert 1.0 - longest <= outcome.workers()[0]["train_s"] <= 1.0 + 2 * longest
    evals = outcome.rows("evals")
    assert len(evals) >= 3
    assert [e["train_s"] for e in evals] == sorted(e["train_s"] for e in evals)


@installed
def test_evaluations_are_after_the_steps_asked_for_too_and_once_where_both_ask(nursery: NurseryClient, tmp_path: Path) -> None:
    outcome = run(nursery, tmp_path, "none", training(data_dir=FEW, budget={"steps": 10}, eval_steps=[3, 7, 10, 20]))
    assert [(row["step"], row["final"]) for row in outcome.rows("evals")] == [(0, False), (3, False), (7, False), (10, True)]


@installed
def test_the_warm_up_leaves_no_trace(nursery: NurseryClient, tmp_path: Path) -> None:
    digests = []
    for warmup_steps in (1, 3):
        folder = tmp_path / str(warmup_steps)
        folder.mkdir()
        work = training(data_dir=FEW, model="resnet8", batch_size=8, budget={"steps": 4}, warmup_steps=warmup_steps)
        outcome = run(nursery, folder, "topk-0.1", work)
        digests.append(outcome.workers()[0]["parameter_digest"])
        events = [row for rank in range(WORLD) for row in outcome.rows(f"events-{rank}")]
        assert len({row["data"]["steps"] for row in events if row["kind"] == "warmup_done"}) == 1
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("most", "done", "seconds", "times"),
    [
        (8, 1, 0.01, 8),
        (8, 1, 0.3, 3),  # a fourth would end after 1.2 s
        (8, 1, 60.0, 1),  # what was the least had to be, however slow the network
        (5, 3, 60.0, 3),
        (5, 3, 0.7, 4),
        (0, 0, 0.0, 0),
    ],
)
def test_a_warm_up_has_its_steps_but_where_they_are_long_only_those_it_needs(most: int, done: int, seconds: float, times: int) -> None:
    assert how_often(most, done, seconds) == times


@installed
def test_an_accuracy_reached_ends_the_run(nursery: NurseryClient, tmp_path: Path) -> None:
    outcome = run(nursery, tmp_path, "none", training(data_dir=FEW, budget={"accuracy": 0.3, "steps": 500}, eval_every_s=0.05))
    evals = outcome.rows("evals")
    assert evals[-2]["accuracy"] >= 0.3
    assert outcome.workers()[0]["steps"] < 500


@pytest.mark.parametrize("scheme", ["none", "topk-0.1"])
def test_replay_sleeps_its_compute_and_sends_the_models_gradient(nursery: NurseryClient, tmp_path: Path, scheme: str) -> None:
    work = {"kind": "replay", "model": "resnet20", "compute_s": 0.06, "batch_size": 16, "budget": {"steps": 6}, "warmup_steps": 2}
    outcome = run(nursery, tmp_path, scheme, work)
    check_steps(outcome)
    rows = outcome.steps(0)
    assert all(row["loss"] is None and row["samples"] == 16 for row in rows)
    assert 0.055 < min(row["compute_s"] for row in rows) < 0.12
    assert 0.055 < outcome.workers()[0]["quiet_compute_s"] < 0.12
    assert rows[0]["dense_bytes"] == 4 * sum(layer_sizes("resnet20"))


def test_a_straggler_computes_more_slowly_in_the_steps_that_say_so_and_not_in_the_warm_up(nursery: NurseryClient, tmp_path: Path) -> None:
    work = {"kind": "replay", "model": "resnet8", "compute_s": 0.02, "batch_size": 16, "budget": {"steps": 12}, "warmup_steps": 2}
    sometimes = [{"low": 2.0, "high": 4.0, "chance": 0.5}]
    outcome = run(nursery, tmp_path, "topk-0.1", work, slowdowns=([], sometimes))
    check_steps(outcome)
    assert {row["slowdown"] for row in outcome.steps(0)} == {1.0}
    drawn = [row["slowdown"] for row in outcome.steps(1)]
    assert drawn == [Slowdowns([Slowdown(**sometimes[0])], seed=1, rank=1).of(step) for step in range(12)]
    assert min(drawn) == 1.0 and max(drawn) > 2.0
    assert all(row["compute_s"] >= 0.999 * 0.02 * row["slowdown"] for row in outcome.steps(1))
    assert outcome.workers()[1]["quiet_compute_s"] < 0.04


@pytest.mark.parametrize("scheme", ["none", "topk-0.1"])
def test_dilated_replay_tells_the_experiments_time(nursery: NurseryClient, tmp_path: Path, scheme: str) -> None:
    work = {"kind": "replay", "model": "resnet8", "compute_s": 0.02, "batch_size": 16, "budget": {"seconds": 0.2}, "warmup_steps": 2}
    outcome = run(nursery, tmp_path, scheme, work, dilation=4.0)
    check_steps(outcome)
    rows = outcome.steps(0)
    assert all(row["compute_s"] >= 0.999 * 0.02 for row in rows)
    began, ended = rows[0]["mono_s"], rows[-1]["mono_s"]
    told_s = rows[-1]["train_s"] - rows[-1]["step_s"]  # of all steps but the last
    assert ended - began >= 4.0 * told_s  # between steps a worker reads counters and writes its records
    assert outcome.workers()[0]["train_s"] == pytest.approx(0.2, abs=2 * max(row["step_s"] for row in rows))


@installed
@pytest.mark.parametrize("scheme", ["none", "topk-0.1"])
def test_real_training_is_slowed_down_and_still_learns_the_same(nursery: NurseryClient, tmp_path: Path, scheme: str) -> None:
    digests = []
    for name, pace in (("plain", {}), ("dilated", {"dilation": 3.0}), ("straggling", {"slowdowns": ([], [{"low": 20.0, "high": 20.0}])})):
        folder = tmp_path / name
        folder.mkdir()
        outcome = run(nursery, folder, scheme, training(data_dir=FEW, budget={"steps": 6}), **pace)  # type: ignore[arg-type]
        check_steps(outcome)
        digests.append(outcome.workers()[0]["parameter_digest"])
    assert len(set(digests)) == 1
    quick, slow = (statistics.median(row["compute_s"] for row in outcome.steps(rank)) for rank in (0, 1))
    assert slow > 2 * quick  # of the last one: twenty times, less what a busy machine adds to both


def test_an_assisted_policy_follows_the_board_until_it_is_old_and_again_when_it_is_back(nursery: NurseryClient, tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board.bin", [QueueInfo("b:s1->s2", "b", "s1", "s2", "", 100_000, 0.005, True)], [40e6])
    board.set_hops(0, 0b11)
    (tmp_path / "stream").mkdir()
    events_0 = tmp_path / "stream" / "events-0.jsonl"
    events_0.touch()
    over = threading.Event()

    def sample() -> None:
        began = math.inf
        while not over.wait(0.01):
            if began == math.inf and "measured_start" in events_0.read_text():
                began = time.monotonic()
            if not 0.7 < time.monotonic() - began < 1.4:
                board.write_queue(0, QueueReading(time.monotonic(), 0, 0, 0, 0, 0, 0, 0.0, 0.0))

    work = {"kind": "replay", "model": "resnet20", "compute_s": 0.02, "batch_size": 16, "budget": {"seconds": 2.0}, "warmup_steps": 2}
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        outcome = run(nursery, tmp_path, {"scheme": "netsense-sdn", "max_age_s": 0.3}, work, telemetry=str(tmp_path / "board.bin"))
    finally:
        over.set()
        sampler.join()
    events = [row for row in outcome.rows("events-0") if row["kind"] == "policy_source"]
    assert [event["data"]["source"] for event in events] == ["telemetry", "sensing", "telemetry"]
    assert re.fullmatch(r"telemetry is 0\.[3-9] s old: netsense-sdn senses by itself", events[1]["text"])
    assert events[2]["text"].startswith("telemetry is back")
    assert "policy_source" not in {row["kind"] for row in outcome.rows("events-1")}
    rows = outcome.steps(0)
    assert [row["ratio"] for row in rows] == [row["ratio"] for row in outcome.steps(1)]
    told = [row for row in rows[1:] if row["btlbw_bps"] == row["available_bps"]]
    assert rows[0]["available_bps"] is None and 0 < len(told) < len(rows) - 1
    assert {row["available_bps"] for row in told} == {40e6}
    # two buckets of one round each, 10 ms at 40 Mbit/s, nine tenths of it; the round of measurements has 200 bytes
    assert told[5]["bytes_sent"] == pytest.approx(90_000 + 200, rel=0.001)


def test_a_job_that_cannot_run_is_reported(nursery: NurseryClient, tmp_path: Path) -> None:
    nursery.ask(job=str(tmp_path / "missing.json"), netns_pid=None, log=None)
    assert nursery.hear()["event"] == "error"
    work = {"kind": "replay", "model": "lenet", "compute_s": 0.01, "batch_size": 1, "budget": {"steps": 1}}
    path = tmp_path / "job.json"
    Job("run", 0, 1, "127.0.0.1", 0, "", str(tmp_path), 1, {"scheme": "none"}, work, timeout_s=5).save(path)
    nursery.ask(job=str(path), netns_pid=None, log=str(tmp_path / "log"))
    assert nursery.hear()["event"] == "started"
    assert nursery.hear()["code"] == 1
    assert "unknown gradient size 'lenet'" in (tmp_path / "log").read_text()


def test_the_nursery_ignores_an_interrupt_and_takes_its_workers_with_it(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "workloads.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    client = NurseryClient(process)
    assert client.hear()["event"] == "ready"
    process.send_signal(signal.SIGINT)
    work = {"kind": "replay", "model": "resnet8", "compute_s": 0.01, "batch_size": 1, "budget": {"seconds": 1000}}
    path = tmp_path / "job.json"
    Job("run", 1, 2, "127.0.0.1", 1, "", str(tmp_path), 1, {"scheme": "none"}, work).save(path)  # rank 0 never comes
    client.ask(job=str(path), netns_pid=None, log=str(tmp_path / "log"))
    worker = client.hear()["pid"]
    assert process.stdin
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert not Path(f"/proc/{worker}").exists()
