"""Judging a finished run: only a complete record is judged, and what is wrong with it is in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from testbed.emulation.judgement import Unjudgeable, judge
from testbed.emulation.plan import RunPlan
from testbed.record import RunFolder, write_json
from testbed.timeline import Change, Timeline
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(2, LinkSpec(8e6, 0.005), LinkSpec(100e6))
WIRE_BYTES = 1_547_000  # 1000 full segments out, and the acknowledgements of 1000 in
STEP = {"step": 0, "slowdown": 1.0, "compute_s": 0.066, "bytes_sent": 1_448_000, "bytes_received": 1_448_000, "wire_bytes_sent": WIRE_BYTES}
ROLES = ("vswitchd", "delayline", "workers")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def usage(mono_s, busy_s, workers_s):
    return {
        "mono_s": mono_s,
        "cpu_s": {**dict.fromkeys(ROLES, 0.0), "workers": workers_s},
        "waited_s": dict.fromkeys(ROLES, 0.0),
        "machine_busy_s": busy_s,
        "machine_steal_s": 0.0,
        "softnet_drops": 0,
        "socket_drops": 0,
        "switch_lost": 0,
        "tcp": dict.fromkeys(("RetransSegs", "TCPLossProbes", "TCPDSACKRecv", "TCPDSACKOfoRecv", "TCPDSACKRecvSegs"), 0),
        "delay": None,
    }


@pytest.fixture
def folder(tmp_path):
    """A run of two workers measured from 100 s to 110 s, its bottleneck never backlogged."""
    folder = RunFolder(tmp_path / "none", {})
    for rank in (0, 1):
        write_lines(folder.stream / f"steps-{rank}.jsonl", [{**STEP, "rank": rank, "mono_s": 100.5 + rank}])
        worker = {
            "rank": rank,
            "parameter_digest": "a",
            "quiet_compute_s": 0.060,
            "rounds": 2,
            "messages": 0,
            "pattern": "ring",
            "steps": 1,
        }
        write_json(folder.stream / f"worker-{rank}.json", worker)
    write_lines(folder.stream / "events-0.jsonl", [{"kind": "measured_start", "mono_s": 100.0}, {"kind": "measured_end", "mono_s": 110.0}])
    write_lines(
        folder.stream / "usage.jsonl", [usage(99.0, 0.0, 0.0), usage(101.0, 5.0, 1.0), usage(109.0, 13.0, 7.0), usage(111.0, 99.0, 9.0)]
    )
    row = {
        "link": "bottleneck",
        "source": "s1",
        "sent_bytes": 0,
        "sent_packets": 0,
        "backlog_bytes": 0,
        "rate_bps": 8e6,
        "dropped_packets": 0,
    }
    write_lines(folder.stream / "links.jsonl", [{**row, "mono_s": 99.0 + i} for i in range(12)])
    return folder


@pytest.fixture
def plan(folder):
    return RunPlan("none", str(folder.path), NETWORK, 1500, {}, False, 1, {}, {"scheme": "none"}, {"kind": "replay"})


def test_a_complete_record_of_a_faithful_run_is_valid(plan, folder):
    judged = judge(plan, folder)
    assert (judged["valid"], judged["invalid_reasons"]) == (True, [])
    assert judged["fidelity"]["value"] is None
    assert judged["compute_inflation"] == pytest.approx(1.1)
    assert judged["origin_mono_s"] == 100.5
    assert judged["prediction"]["step_s"] == pytest.approx(0.060 + 1_514_000 * 8 / 8e6 + 2 * 0.010)


def test_a_prediction_beside_background_traffic_says_that_it_ignores_it(plan, folder):
    assert judge(plan, folder)["prediction"]["ignores"] == []
    row = {"mono_s": 50.0, "seconds": 0.5, "entry": 0, "source": "t1", "target": "t2"}
    write_lines(folder.stream / "background.jsonl", [{**row, "received_bytes": 1, "retransmits": 0, "lost_packets": None}])
    rewritten(folder.stream / "steps-0.jsonl", lambda mono_s: {"step_s": 0.1})
    rewritten(folder.stream / "steps-1.jsonl", lambda mono_s: {"step_s": 0.1})
    judged = judge(plan, folder)
    assert judged["valid"]
    assert judged["prediction"]["ignores"] == ["background traffic"]


def test_a_straggler_is_no_inflation_and_the_prediction_waits_for_the_slowest(plan, folder):
    slow = {**STEP, "rank": 1, "mono_s": 101.5, "slowdown": 3.0, "compute_s": 0.198}
    write_lines(folder.stream / "steps-1.jsonl", [slow])
    judged = judge(plan, folder)
    assert judged["compute_inflation"] == pytest.approx(1.1)
    assert judged["prediction"]["step_s"] == pytest.approx(3 * 0.060 + 1_514_000 * 8 / 8e6 + 2 * 0.010)


def test_a_dilated_run_is_judged_in_the_machines_time_and_predicted_in_the_experiments(plan, folder):
    undilated = replace(plan, network=NETWORK.dilated(1 / 5))
    judged = judge(undilated.dilated(5.0), folder)
    assert judged["valid"], judged["invalid_reasons"]
    assert judged["compute_inflation"] == pytest.approx(1.1)
    assert judged["prediction"]["step_s"] == pytest.approx(0.060 + 1_514_000 * 8 / 40e6 + 2 * 0.002)


def test_cpu_time_is_that_of_the_measured_part_and_what_is_not_ours_is_foreign(plan, folder):
    cpu = judge(plan, folder)["cpu"]
    assert (cpu["workers_s"], cpu["busy_s"], cpu["foreign_s"], cpu["wall_s"]) == (6.0, 8.0, 2.0, 8.0)


def test_what_is_wrong_is_told_in_words(plan, folder):
    write_json(
        folder.stream / "worker-1.json", {"parameter_digest": "b", "quiet_compute_s": 0.060, "rounds": 2, "messages": 0, "pattern": "ring"}
    )
    judged = judge(plan, folder)
    assert (judged["valid"], judged["invalid_reasons"]) == (False, ["the workers' models differ at the end"])


def rewritten(path, change):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [{**row, **change(row["mono_s"])} for row in rows])


def test_frames_a_full_queue_dropped_during_the_warm_up_do_not_spoil_the_run(plan, folder):
    rewritten(folder.stream / "usage.jsonl", lambda mono_s: {"switch_lost": 3 if mono_s > 99.5 else 0})
    rewritten(folder.stream / "links.jsonl", lambda mono_s: {"dropped_packets": 3 if mono_s > 99.5 else 0})
    assert judge(plan, folder)["invalid_reasons"] == []


@pytest.mark.parametrize("missing", ["worker-1.json", "events-0.jsonl", "steps-*.jsonl"])
def test_an_incomplete_record_is_a_failed_run(plan, folder, missing):
    for file in folder.stream.glob(missing):
        file.unlink()
    with pytest.raises(Unjudgeable, match="without a complete record"):
        judge(plan, folder)


def test_a_record_without_samples_of_the_queues_is_a_failed_run(plan, folder):
    (folder.stream / "links.jsonl").unlink()
    with pytest.raises(Unjudgeable):
        judge(plan, folder)


def changed(folder, *told):
    """Note changes of the bottleneck in the run's events: (time, lateness, what)."""
    rows = [{"mono_s": at_s, "kind": "link_changed", "text": "", "data": {"late_s": late_s, **what}} for at_s, late_s, what in told]
    write_lines(folder.stream / "events-runner.jsonl", rows)


BREAK = Timeline((Change("bottleneck", at_s=3.0, state="down"), Change("bottleneck", at_s=4.0, state="up")))
LOST = "500 frames were lost in the switches, 0 by full queues"


def test_frames_lost_while_a_link_was_down_are_no_fault_and_a_changing_network_has_no_one_prediction(plan, folder):
    rewritten(folder.stream / "usage.jsonl", lambda mono_s: {"switch_lost": 500 if mono_s > 105 else 0})
    changed(folder, (103.0, 0.004, {"state": "down"}), (104.0, 0.004, {"state": "up"}))
    judged = judge(replace(plan, timeline=BREAK), folder)
    assert judged["invalid_reasons"] == []
    assert {check["text"] for check in judged["checks"] if "not judged" in check["text"]} == {"not judged: a link was down"}
    assert judged["prediction"]["step_s"] is None


def test_a_link_that_never_went_down_excuses_nothing(plan, folder):
    rewritten(folder.stream / "usage.jsonl", lambda mono_s: {"switch_lost": 500 if mono_s > 105 else 0})
    changed(folder, (112.0, 0.004, {"state": "down"}))  # after the last measured step
    late = Timeline((Change("bottleneck", at_s=12.0, state="down"),))
    assert judge(replace(plan, timeline=late), folder)["invalid_reasons"] == [LOST]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([(103.0, 0.004, {}), (104.0, 0.004, {})], []),
        ([(103.0, 0.004, {}), (104.07, 0.07, {})], ["a link was changed 70 ms late"]),
        ([(103.0, 0.004, {})], ["1 changes of links did not happen"]),
    ],
)
def test_every_change_that_was_due_must_have_happened_in_time(plan, folder, told, reason):
    changed(folder, *told)
    assert judge(replace(plan, timeline=BREAK), folder)["invalid_reasons"] == reason
