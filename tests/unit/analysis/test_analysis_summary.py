from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import load, summarise
from analysis.summary import ENDS, by_scheme, swept_columns, write_summary


def test_every_value_is_what_a_hand_works_out(folder: Path) -> None:
    table = summarise(load(folder)).set_index("run")
    row = table.loc["topk-0.1-train-0"]
    assert row["throughput_samples_s"] == pytest.approx(4 * 32 / 0.125)
    assert row["mean_step_s"] == pytest.approx(0.125)
    assert row["compute_s"] == pytest.approx(0.025)
    assert row["encode_s"] == pytest.approx(0.0125)
    assert row["exchange_s"] == pytest.approx(0.08125)
    assert row["decode_s"] == pytest.approx(0.00625)
    assert row["bytes_per_step"] == 60_000
    assert row["wire_bytes_per_step"] == 66_000
    assert row["compression_ratio"] == pytest.approx(2 * 3 / 4 * 400_000 / 60_000)
    assert row["speedup_over_none"] == pytest.approx(2.0)
    assert row["predicted_step_s"] == pytest.approx(0.1125)
    assert row["fidelity"] == 0.997
    assert row["final_accuracy"] == 0.9
    assert row["target_accuracy"] == pytest.approx(0.95 * 0.9)
    assert row["time_to_accuracy_s"] == pytest.approx(20 * 0.125)
    assert not row["valid"]
    assert row["invalid_reasons"] == "fidelity 0.93 is below 0.98"


def test_replay_is_compared_with_replay(folder: Path) -> None:
    table = summarise(load(folder)).set_index("run")
    assert table.loc["none-replay-0", "speedup_over_none"] == pytest.approx(1.0)
    assert table["workload"].to_dict()["none-replay-0"] == "replay"


def test_background_traffic_is_summed_up_where_there_was_some_and_older_runs_lack_its_table(folder: Path) -> None:
    run = folder / "none-train-0"
    names = {"entry": 0, "source": "t1", "target": "t2", "protocol": "tcp", "flows": 1}
    row = {"seconds": 0.5, **names, "received_bytes": 50_000, "goodput_bps": 8e5, "retransmits": 1, "lost_packets": None}
    pd.DataFrame([{**row, "t_s": 0.5 * i} for i in range(10)]).to_parquet(run / "background.parquet")
    results = load(folder)
    table = summarise(results).set_index("run")
    assert table.loc["none-train-0", "background_bps"] == pytest.approx(800_000)
    assert table["background_bps"].drop("none-train-0").isna().all()
    assert results.problems == []
    assert results.runs[0].background["protocol"].unique().tolist() == ["tcp"]


def test_null_is_an_empty_cell(folder: Path) -> None:
    path = write_summary(summarise(load(folder)), folder / "summary.csv")
    rows = {row["run"]: row for row in csv.DictReader(path.read_text().splitlines())}
    assert list(rows) == ["none-train-0", "none-replay-0", "topk-0.1-train-0", "3lc-train-0", "dc2-train-0"]
    killed = rows["3lc-train-0"]
    assert killed["status"] == "running"
    assert killed["valid"] == "False"
    assert [killed[key] for key in ("fidelity", "compute_inflation", "final_accuracy", "time_to_accuracy_s")] == [""] * 4
    assert killed["throughput_samples_s"] == "1280"
    missing = rows["dc2-train-0"]
    assert missing.pop("run") == "dc2-train-0"
    assert missing.pop("status") == "missing"
    assert set(missing.values()) == {""}
    assert rows["none-replay-0"]["final_accuracy"] == ""


def test_no_speedup_is_stated_over_a_baseline_that_is_not_valid(tmp_path: Path) -> None:
    runs = [FakeRun("none", invalid_reasons=("slow",)), FakeRun("topk-0.1")]
    assert summarise(load(write_experiment(tmp_path / "x", runs)))["speedup_over_none"].isna().all()


def test_cells_have_their_own_baseline_and_columns(tmp_path: Path) -> None:
    runs = [
        FakeRun(scheme, step_s=step_s, cell={"topology.bottleneck.rate": rate})
        for rate, times in ((1e7, (0.4, 0.1)), (4e7, (0.2, 0.1)))
        for scheme, step_s in zip(("none", "topk-0.1"), times, strict=True)
    ]
    table = summarise(load(write_experiment(tmp_path / "x", runs)))
    assert swept_columns(table) == ["topology.bottleneck.rate"]
    assert table["topology.bottleneck.rate"].to_list() == [1e7, 1e7, 4e7, 4e7]
    assert table["speedup_over_none"].to_list() == pytest.approx([1, 4, 1, 2])


def test_repeats_share_an_interval_and_an_invalid_one_is_left_out(tmp_path: Path) -> None:
    times = (0.25, 0.2, 0.16)
    runs = [FakeRun("none", step_s=step_s, repeat=repeat) for repeat, step_s in enumerate(times)]
    runs.append(FakeRun("none", step_s=1.0, repeat=3, invalid_reasons=("bad",)))
    table = summarise(load(write_experiment(tmp_path / "x", runs)))
    assert table["interval"].to_list()[:3] == ["95 % Student t over 3 repeats"] * 3
    assert table["interval"].to_list()[3] == "95 % bootstrap over 1 s windows"  # of 20 s
    bars = by_scheme(table)
    assert len(bars) == 1
    assert bars["throughput_samples_s"].item() == pytest.approx(640)  # the median
    assert bars["left_out"].item() == 1
    assert bars["repeats"].item() == 3


def test_a_repeat_that_never_got_there_counts_as_later_than_any_that_did(tmp_path: Path) -> None:
    never = (0.1, 0.2, 0.3)
    runs = [FakeRun("none"), *(FakeRun("topk-0.1", step_s=0.1 * n, repeat=n) for n in (1, 2)), FakeRun("topk-0.1", accuracies=never)]
    runs += [FakeRun("3lc", repeat=1), FakeRun("3lc", repeat=2, accuracies=never)]
    table = summarise(load(write_experiment(tmp_path / "x", runs)))
    rows = by_scheme(table).set_index("scheme")
    assert rows["time_to_accuracy_s"].to_dict() == pytest.approx({"none": 5.0, "topk-0.1": 4.0, "3lc": math.nan}, nan_ok=True)
    assert rows["reached"].to_dict() == {"none": 1, "topk-0.1": 2, "3lc": 1}


def test_accuracy_time_and_speedup_have_intervals_over_their_repeats_too(tmp_path: Path) -> None:
    runs = [FakeRun("none", step_s=0.25)]
    runs += [FakeRun("topk-0.1", step_s=0.1 + 0.01 * n, accuracies=(0.5, 0.6, 0.88 + 0.01 * n), repeat=n) for n in range(3)]
    table = summarise(load(write_experiment(tmp_path / "x", runs)))
    row = by_scheme(table).set_index("scheme").loc["topk-0.1"]
    half = 4.303 * 0.01 / math.sqrt(3)  # of Student's interval
    assert [row["final_accuracy"], row["final_accuracy_low"], row["final_accuracy_high"]] == pytest.approx([0.89, 0.89 - half, 0.89 + half])
    assert [row["time_to_accuracy_low_s"], row["time_to_accuracy_high_s"]] == pytest.approx([2.2 - 20 * half, 2.2 + 20 * half])
    assert row["speedup_low"] == pytest.approx(row["throughput_low"] / 512)
    assert row["speedup_high"] == pytest.approx(row["throughput_high"] / 512)
    ends = ["final_accuracy_low", "time_to_accuracy_low_s", "speedup_low"]
    assert table[ends].isna().all(axis=1).to_list() == [True, False, False, False]  # a single run says nothing of others


def test_no_accuracy_is_above_one(tmp_path: Path) -> None:
    runs = [FakeRun("none", accuracies=(0.5, 0.6, last), repeat=n) for n, last in enumerate((0.9, 0.99))]
    row = summarise(load(write_experiment(tmp_path / "x", runs))).iloc[0]
    assert (row["final_accuracy_low"], row["final_accuracy_high"]) == (pytest.approx(0.3733, abs=1e-3), 1.0)


@pytest.mark.parametrize("count", [5, 6])
def test_the_interval_of_the_time_is_open_where_a_repeat_never_got_there(tmp_path: Path, count: int) -> None:
    spec = {"workload": {"kind": "train", "batch_size": 32, "target_accuracy": 0.85}}
    runs = [FakeRun("3lc", step_s=0.1 * n, manifest={"spec": spec}, repeat=n) for n in range(1, count)]
    runs.append(FakeRun("3lc", accuracies=(0.1, 0.2, 0.3), manifest={"spec": spec}, repeat=count))
    row = by_scheme(summarise(load(write_experiment(tmp_path / "x", runs)))).iloc[0]
    assert row["time_to_accuracy_s"] == pytest.approx({5: 6.0, 6: 7.0}[count])
    assert row["time_to_accuracy_low_s"] == pytest.approx({5: math.nan, 6: 2.0}[count], nan_ok=True)  # of 5, no order covers 95 %
    assert math.isnan(row["time_to_accuracy_high_s"])


def test_repeats_none_of_which_is_valid_have_a_median_without_an_interval(tmp_path: Path) -> None:
    runs = [FakeRun("none", step_s=step_s, repeat=n, invalid_reasons=("bad",)) for n, step_s in enumerate((0.25, 0.2, 0.16))]
    runs.append(FakeRun("3lc", invalid_reasons=("bad",)))
    rows = by_scheme(summarise(load(write_experiment(tmp_path / "x", runs)))).set_index("scheme")
    assert rows.loc["none", "throughput_samples_s"] == pytest.approx(640)
    assert rows.loc["none", [*ENDS, "interval"]].isna().all()
    assert rows.loc["3lc", "throughput_low"] == pytest.approx(512)  # that of its windows


WIDER = {"spec": {"workload": {"kind": "train", "batch_size": 32}, "topology": {"kind": "dumbbell", "workers": 8}}}


@pytest.mark.parametrize(
    ("stranger", "why"),
    [({"experiment": "other"}, "is of another experiment, other"), (WIDER, "has another topology than none-train-1")],
    ids=["another name", "another spec"],
)
def test_runs_that_stand_apart_are_in_no_median_and_have_no_speedup(tmp_path: Path, stranger: dict[str, Any], why: str) -> None:
    runs = [FakeRun("none", step_s=0.4, repeat=1), FakeRun("topk-0.1", step_s=0.2, repeat=1)]
    runs += [FakeRun(run.scheme, step_s=0.01, repeat=2, manifest=stranger) for run in runs]
    table = summarise(load(write_experiment(tmp_path / "quick", runs)))
    assert table["apart"].fillna("").to_list() == ["", "", why, why]
    assert table["throughput_samples_s"].to_list() == pytest.approx([320, 640, 12800, 12800])
    assert table["speedup_over_none"].to_list() == pytest.approx([1, 2, math.nan, math.nan], nan_ok=True)
    assert table["target_accuracy"].to_list() == pytest.approx([0.855, 0.855, math.nan, math.nan], nan_ok=True)
    rows = by_scheme(table)
    assert rows["throughput_samples_s"].to_list() == pytest.approx([320, 640])
    assert rows["repeats"].to_list() == [1, 1]


def test_two_swept_workloads_of_one_kind_are_cells_of_their_own(tmp_path: Path) -> None:
    runs = []
    for repeat, (model, step_s) in enumerate((("resnet8", 0.4), ("resnet20", 0.8))):
        changed = {"spec": {"workload": {"kind": "train", "model": model}}, "cell": {"workload": f"train-{model}"}}
        runs += [FakeRun(scheme, step_s=step_s, repeat=repeat, manifest=changed) for scheme in ("none", "topk-0.1")]
    results = load(write_experiment(tmp_path / "x", runs))
    assert results.problems == []
    table = summarise(results)
    assert table["speedup_over_none"].to_list() == pytest.approx([1, 1, 1, 1])
    assert by_scheme(table)["workload.variant"].to_list() == ["train-resnet8"] * 2 + ["train-resnet20"] * 2


@pytest.mark.parametrize(
    "asked", [{"target_accuracy": 0.75}, {"target_accuracy": 0.8, "budget": {"accuracy": 0.75}}], ids=["workload", "budget"]
)
def test_an_experiments_own_target_is_used(tmp_path: Path, asked: dict[str, Any]) -> None:
    run = FakeRun("topk-0.1", manifest={"spec": {"workload": {"kind": "train", **asked}}})
    row = summarise(load(write_experiment(tmp_path / "x", [run]))).iloc[0]
    assert row["target_accuracy"] == 0.75
    assert row["time_to_accuracy_s"] == pytest.approx(13 * 0.25)


def test_an_evaluation_after_given_steps_counts_for_no_time_to_accuracy(tmp_path: Path) -> None:
    spec = {"workload": {"kind": "train", "batch_size": 32, "target_accuracy": 0.5, "eval_steps": [10, 30]}}
    runs = [FakeRun("none", step_s=0.5, steps=30, accuracies=(0.6, 0.7, 0.8), manifest={"spec": spec})]  # after 10, 20 and 30 steps
    results = load(write_experiment(tmp_path / "quick", runs))
    assert results.runs[0].timed_evals["step"].tolist() == [20, 30]  # the last one is by the clock too
    assert summarise(results)["time_to_accuracy_s"].tolist() == [20 * 0.5]
