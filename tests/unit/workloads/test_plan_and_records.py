import json
import time
from pathlib import Path

import pytest

from workloads.exchange.plan import NOTHING, Plan, plan_allreduce
from workloads.exchange.ring import plan_ring
from workloads.job import Job, JobError
from workloads.policies.policy import Sample
from workloads.policies.static import Static
from workloads.records import Stream, WireCounters


# bytes one worker sent, read from TCP_INFO
@pytest.mark.parametrize(
    ("size", "world", "measured"),
    [
        (1_000_000, 2, 1_000_576),
        (8_000_000, 2, 8_001_152),
        (20_000_000, 2, 20_002_880),
        (1_000_000, 3, 1_334_484),
        (4000, 4, 7728),
        (8_000_000, 4, 12_001_728),
        (20_000_000, 4, 30_004_320),
    ],
)
def test_allreduce_bytes_are_what_gloo_was_seen_to_send(size: int, world: int, measured: int) -> None:
    assert plan_allreduce(size, world).bytes_sent == pytest.approx(measured, abs=8)
    assert plan_allreduce(size, world).rounds == 2 * (world - 1)


def test_around_a_ring_every_worker_sends_all_payloads_but_its_right_neighbours_and_receives_all_but_its_own() -> None:
    lengths = [10, 200, 3000, 40_000]
    framing = 3 * 96  # a message a hop
    assert [plan_ring(lengths, rank).bytes_sent - framing for rank in range(4)] == [43_010, 40_210, 3210, 43_200]
    assert [plan_ring(lengths, rank).bytes_received - framing for rank in range(4)] == [43_200, 43_010, 40_210, 3210]
    assert plan_ring(lengths, 0).rounds == 2.0  # the handshake and three one-way trips


def test_one_worker_sends_nothing() -> None:
    assert plan_allreduce(1000, 1).bytes_sent == plan_ring([1000], 0).bytes_sent == 0


def test_costs_add_up() -> None:
    assert Plan(1, 2, 0.5, 3) + Plan(10, 20, 1.0, 30) + NOTHING == Plan(11, 22, 1.5, 33)


def test_the_static_policy_never_changes_its_mind() -> None:
    policy = Static(0.1)
    assert {policy.decide(Sample(step, exchange_s=step)).ratio for step in range(5)} == {0.1}


def test_wire_counters_are_read_quickly_and_only_with_an_interface() -> None:
    assert WireCounters("").read() == (None, None)
    counters = WireCounters("lo")
    sent, received = counters.read()
    assert sent is not None
    assert received is not None
    best = min(_timed(counters.read) for _ in range(50))
    assert best < 2e-4  # about 10 us on an idle machine
    with pytest.raises(OSError, match="nowhere0"):
        WireCounters("nowhere0").read()


def _timed(call: object) -> float:
    start = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - start


def test_stream_rows_are_json_and_flushed(tmp_path: Path) -> None:
    stream = Stream(tmp_path, 0)
    stream.step({"step": 0, "loss": float("nan")})
    stream.event("kind", "text", value=1)
    assert json.loads((tmp_path / "steps-0.jsonl").read_text()) == {"step": 0, "loss": None}
    event = json.loads((tmp_path / "events-0.jsonl").read_text())
    assert (event["kind"], event["data"]) == ("kind", {"value": 1})
    stream.close()


def job(**changes: object) -> Job:
    fields: dict[str, object] = {"run": "r", "rank": 0, "world_size": 2, "master_addr": "127.0.0.1", "master_port": 1, "interface": ""}
    fields |= {"run_dir": "/nowhere", "seed": 1, "scheme": {"scheme": "none"}, "workload": {"kind": "replay", "budget": {"steps": 1}}}
    return Job(**(fields | changes))  # type: ignore[arg-type]


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job().save(tmp_path / "job.json")
    assert Job.load(tmp_path / "job.json") == job()


def test_bad_jobs_are_refused(tmp_path: Path) -> None:
    for changes, sentence in (
        ({"rank": 2}, "rank"),
        ({"schema": 2}, "schema"),
        ({"workload": {"kind": "sleep"}}, "train"),
        ({"workload": {"kind": "train", "budget": {"seconds": None}}}, "budget"),
        ({"workload": {"kind": "train", "budget": {"minutes": 1, "steps": 1}}}, "budget"),
    ):
        with pytest.raises(JobError, match=sentence):
            job(**changes)
    path = tmp_path / "job.json"
    job().save(path)
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"colour": "red"}))
    with pytest.raises(JobError, match="colour"):
        Job.load(path)
    del raw["seed"]
    path.write_text(json.dumps(raw))
    with pytest.raises(JobError, match="seed"):
        Job.load(path)
