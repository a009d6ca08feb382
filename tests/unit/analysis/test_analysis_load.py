from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import ResultsError, load, summarise


def test_runs_come_in_planned_order_and_the_missing_one_is_listed(folder: Path) -> None:
    results = load(folder)
    assert [run.slug for run in results.runs] == ["none-train-0", "none-replay-0", "topk-0.1-train-0", "3lc-train-0"]
    assert results.missing == ["dc2-train-0"]
    assert results.name == "quick"
    assert results.problems == []


def test_frames_carry_run_and_scheme(folder: Path) -> None:
    results = load(folder)
    steps = results.frames.steps
    assert len(steps) == 4 * 20 * 4
    assert set(steps["run"]) == {run.slug for run in results.runs}
    assert set(steps.loc[steps["run"] == "topk-0.1-train-0", "scheme"]) == {"topk-0.1"}
    assert set(results.frames.events["kind"]) == {"start"}
    assert results.frames.evals["final"].sum() == 2


def test_a_killed_run_is_read_from_its_stream_on_worker_0s_clock(folder: Path) -> None:
    run = load(folder).runs[-1]
    assert not run.complete
    assert not run.valid
    assert run.verdict == "incomplete: killed or still going"
    assert run.steps["t_s"].min() == 0
    assert run.steps.loc[run.steps["step"] == 3, "t_s"].to_list() == pytest.approx([0.3] * 4)
    assert run.links["t_s"].min() == pytest.approx(-5 * 2.0 / 200)
    assert run.events["t_s"].to_list() == pytest.approx([-1.0])
    assert run.damage == []  # a last line cut short is what a kill leaves behind


def test_a_run_killed_before_its_first_step_has_only_set_up(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none"), FakeRun("3lc", status="running", steps=0, accuracies=())])
    run = load(folder).runs[1]
    assert run.steps.empty
    assert run.events["t_s"].max() <= 0


def test_a_bad_line_in_the_middle_of_a_stream_is_a_problem(folder: Path) -> None:
    stream = folder / "3lc-train-0" / "stream" / "steps-1.jsonl"
    lines = stream.read_text().splitlines()
    stream.write_text("\n".join([*lines[:2], "garbage", '{"no": "clock"}', *lines[2:]]))
    results = load(folder)
    assert len(results.frames.steps) == 4 * 20 * 4
    assert results.problems == ["run 3lc-train-0: stream/steps-1.jsonl has 2 unreadable line(s), left out"]


def test_a_run_failed_with_parquet_and_no_stream_is_read(folder: Path) -> None:
    path = folder / "none-train-0" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "failed", "reason": "worker 2 died"}))
    run = load(folder).runs[0]
    assert len(run.steps) == 80
    assert run.invalid_reasons == ["failed: worker 2 died"]


def test_a_dilated_run_that_never_finished_is_told_in_the_experiments_time_too(tmp_path: Path) -> None:
    plain, slow = (FakeRun("none", status="running", repeat=repeat, manifest={"dilation": k}) for repeat, k in ((0, 1), (1, 4)))
    plain_run, slow_run = load(write_experiment(tmp_path / "x", [plain, slow])).runs
    assert slow_run.steps["t_s"].to_numpy() == pytest.approx(plain_run.steps["t_s"].to_numpy() / 4)
    assert slow_run.links["rate_bps"].to_numpy() == pytest.approx(4 * plain_run.links["rate_bps"].to_numpy())
    assert slow_run.steps["step_s"].equals(plain_run.steps["step_s"])  # workers record it so


@pytest.mark.parametrize("content", [b"", b"PAR1 not really", None])
def test_a_damaged_table_marks_its_run_and_hides_no_other(folder: Path, content: bytes | None) -> None:
    path = folder / "none-train-0" / "steps.parquet"
    path.unlink() if content is None else path.write_bytes(content)
    results = load(folder)
    table = summarise(results).set_index("run")
    assert len(results.problems) == 1
    assert "run none-train-0: steps.parquet" in results.problems[0]
    assert table.loc["none-train-0", "status"] == "damaged"
    assert not table.loc["none-train-0", "valid"]
    assert table.loc["none-replay-0", "throughput_samples_s"] == pytest.approx(640)


def test_damage_behind_an_intact_footer_is_found_when_read(folder: Path) -> None:
    path = folder / "none-train-0" / "steps.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)
    results = load(folder)
    assert results.problems == []
    assert results.runs[0].steps.empty
    assert "cannot be read" in results.problems[0]


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 99}', "{}"])
def test_a_bad_manifest_leaves_the_other_runs(folder: Path, content: str) -> None:
    (folder / "topk-0.1-train-0" / "manifest.json").write_text(content)
    results = load(folder)
    assert len(results.runs) == 3
    assert results.problems[0].startswith("run topk-0.1-train-0: ")
    assert summarise(results).set_index("run").loc["topk-0.1-train-0", "status"] == "damaged"


def test_a_planned_folder_without_a_manifest_is_a_problem(folder: Path) -> None:
    (folder / "dc2-train-0").mkdir()
    results = load(folder)
    assert results.missing == []
    assert results.problems == ["run dc2-train-0: manifest.json is missing"]


def test_runs_are_found_without_the_experiment_file(folder: Path) -> None:
    (folder / "experiment.json").write_text("{")
    results = load(folder)
    assert len(results.runs) == 4
    assert "planned runs are unknown" in results.problems[0]


def test_a_replay_run_may_lack_evaluations(folder: Path) -> None:
    (folder / "none-replay-0" / "evals.parquet").unlink()
    results = load(folder)
    assert results.runs[1].evals.empty
    assert results.problems == []


def test_what_cannot_be_used_at_all_is_refused_with_a_remedy(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ResultsError, match=r"is not a folder\. Give the results folder"):
        load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match=r"holds no results\. Run an experiment first"):
        load(tmp_path / "empty")
    with pytest.raises(ResultsError, match=r"is one run\. Give the experiment's folder"):
        load(folder / "none-train-0")
    with pytest.raises(ResultsError, match="None of the 1 planned runs"):
        load(write_experiment(tmp_path / "planned", [], also_planned=("a",)))
    (folder / "experiment.json").write_text('{"schema": 2}')
    with pytest.raises(ResultsError, match=r"schema 2; this testbed reads up to 1\. Update"):
        load(folder)


def test_a_folder_of_experiments_is_refused_with_one_of_them_named(folder: Path) -> None:
    with pytest.raises(ResultsError, match=rf"holds 1 experiment\. Give one of them, such as {folder}\."):
        load(folder.parent)


def test_runs_of_another_experiment_are_shown_and_named(folder: Path) -> None:
    path = folder / "topk-0.1-train-0" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"experiment": "other"}))
    results = load(folder)
    assert len(results.runs) == 4
    assert results.problems == ["1 of 4 runs is not compared with the rest, as it is of another experiment, other: topk-0.1-train-0"]
    assert [run.slug for run in results.compared.runs] == ["none-train-0", "none-replay-0", "3lc-train-0"]


def test_a_run_that_tested_something_else_than_its_cell_is_named(folder: Path) -> None:
    path = folder / "topk-0.1-train-0" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["topology"]["workers"] = 8
    path.write_text(json.dumps(manifest))
    results = load(folder)
    assert results.apart == {"topk-0.1-train-0": "has another topology than none-train-0"}
    said = "1 of 4 runs is not compared with the rest, as it has another topology than none-train-0: topk-0.1-train-0"
    assert results.problems == [said]


def test_a_first_run_that_strayed_in_does_not_hide_the_others(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "quick", [FakeRun(scheme) for scheme in ("none", "dc2", "3lc")])
    path = folder / "none-train-0" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"spec": manifest["spec"] | {"dilation": 2.0}}))
    assert load(folder).apart == {"none-train-0": "has another dilation than dc2-train-0"}

    path.write_text(json.dumps(manifest | {"experiment": "other"}))
    (folder / "experiment.json").unlink()
    results = load(folder)
    assert (results.name, results.apart) == ("quick", {"none-train-0": "is of another experiment, other"})


def test_a_run_of_an_older_testbed_is_held_against_what_it_knew(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "quick", [FakeRun(scheme) for scheme in ("none", "dc2")])
    for scheme, spec in (("none", {}), ("dc2", {"routing": {"kind": "ecmp"}})):
        path = folder / f"{scheme}-train-0" / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["spec"]["topology"] |= {"mtu": 1500} | ({"rack": 2} if spec else {})
        manifest["spec"] |= spec
        if not spec:
            del manifest["schema"]
        path.write_text(json.dumps(manifest))
    assert load(folder).apart == {}
    path = folder / "none-train-0" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"]["topology"]["mtu"] = 9000
    path.write_text(json.dumps(manifest))
    assert load(folder).apart == {"none-train-0": "has another topology than dc2-train-0"}


def test_a_field_that_a_newer_testbed_left_open_makes_no_difference(folder: Path) -> None:
    path = folder / "topk-0.1-train-0" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["spec"] |= {"stragglers": [], "dilation": 1.0, "transport": None}  # as they stand where nothing is said of them
    manifest["spec"]["topology"]["rack"] = None
    path.write_text(json.dumps(manifest))
    assert load(folder).apart == {}
    path.write_text(json.dumps(manifest | {"spec": manifest["spec"] | {"dilation": 2.0}}))
    assert list(load(folder).apart) == ["topk-0.1-train-0"]


def test_a_run_that_does_not_say_what_it_tested_sets_no_others_apart(folder: Path) -> None:
    path = folder / "none-train-0" / "manifest.json"  # the first of its cell
    manifest = json.loads(path.read_text())
    del manifest["spec"]
    path.write_text(json.dumps(manifest))
    assert load(folder).apart == {}


def test_a_lacking_column_is_damage_and_the_others_are_read(folder: Path) -> None:
    path = folder / "none-train-0" / "steps.parquet"
    pd.read_parquet(path).drop(columns=["loss"]).to_parquet(path)
    results = load(folder)
    row = summarise(results).set_index("run").loc["none-train-0"]
    assert results.problems == ["run none-train-0: steps.parquet lacks the column(s) loss"]
    assert row["throughput_samples_s"] == pytest.approx(512)
    assert not row["valid"]
