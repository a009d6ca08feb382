"""A run's folder: always whole on disk, from the first manifest to the Parquet files."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from testbed.record import TABLES, RunFolder, read_json, read_lines, write_json


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "quick" / "none", {"run": "none", "seed": 1})


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_was_written_is_read_back_and_nothing_else_is_left(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert read_json(tmp_path / "a.json") == {"x": [1, None]}
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_a_write_that_fails_half_way_leaves_the_old_content_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(TypeError):
        write_json(path, {"x": 2, "y": object()})
    assert read_json(path) == {"x": 1}


@pytest.mark.parametrize("content", [None, "", '{"x": 1', "[1]", "\xff"])
def test_a_missing_or_damaged_file_is_read_as_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content.encode("latin-1"))
    assert read_json(tmp_path / "a.json") is None


def test_a_new_folder_says_running_and_not_valid_before_anything_else(folder):
    manifest = read_json(folder.path / "manifest.json")
    assert manifest == {
        "schema": 1,
        "status": "running",
        "reason": None,
        "valid": False,
        "invalid_reasons": [],
        "run": "none",
        "seed": 1,
    }
    assert folder.stream.is_dir()
    assert folder.logs.is_dir()


def test_changes_are_on_disk_as_soon_as_they_are_saved_and_the_rest_stays(folder):
    folder.save(status="complete", valid=True)
    folder.save(finished="now")
    manifest = read_json(folder.path / "manifest.json")
    assert (manifest["status"], manifest["valid"], manifest["finished"], manifest["run"]) == ("complete", True, "now", "none")


def test_an_earlier_attempt_is_kept_inside_the_new_one(folder):
    folder.save(status="complete", invalid_reasons=["slow"])
    (folder.logs / "worker-0.log").write_text("hello")
    again = RunFolder(folder.path, {"run": "none"})
    assert read_json(again.path / "manifest.json")["status"] == "running"
    assert list(again.logs.iterdir()) == []
    assert read_json(again.path / "earlier" / "manifest.json")["invalid_reasons"] == ["slow"]
    assert (again.path / "earlier" / "logs" / "worker-0.log").read_text() == "hello"
    assert [path.name for path in folder.path.parent.iterdir()] == ["none"]


def test_an_earlier_attempt_left_aside_by_a_killed_run_does_not_stop_the_next(folder):
    aside = folder.path.with_name(".none.earlier")
    aside.mkdir()
    (aside / "manifest.json").write_text("{}")
    assert RunFolder(folder.path, {}).path.is_dir()


def test_a_last_line_cut_off_in_mid_write_is_left_out_and_a_missing_file_is_empty(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"step": 2, "lo')
    assert read_lines(tmp_path / "rows.jsonl") == [{"step": 0}, {"step": 1}]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_a_table_gathers_the_rows_of_every_worker(folder):
    for rank in (0, 1, 10):
        write_lines(folder.stream / f"steps-{rank}.jsonl", [{"rank": rank, "step": step} for step in range(2)])
    table = folder.table("steps")
    assert sorted(zip(table["rank"], table["step"], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1), (10, 0), (10, 1)]
    assert folder.table("evals").empty


def test_workers_come_in_order_of_rank_and_unfinished_ones_are_left_out(folder):
    for rank in (10, 2, 0):
        write_json(folder.stream / f"worker-{rank}.json", {"rank": rank})
    (folder.stream / "worker-1.json").write_text("{")
    assert [worker["rank"] for worker in folder.workers()] == [0, 2, 10]


def test_the_runners_own_events_are_recorded_with_those_of_the_workers(folder):
    folder.event(5.0, "booted", "network up", {"seconds": 1.5})
    folder.event(6.0, "verified", "rates are right")
    write_lines(folder.stream / "events-0.jsonl", [{"mono_s": 7.0, "kind": "measured_start", "text": "", "data": {}}])
    assert folder.table("events")["kind"].tolist() == ["measured_start", "booted", "verified"]


def test_the_measured_window_is_worker_0s(folder):
    rows = [{"mono_s": 11.0, "kind": "measured_start"}, {"mono_s": 15.0, "kind": "other"}, {"mono_s": 20.5, "kind": "measured_end"}]
    write_lines(folder.stream / "events-1.jsonl", [{**row, "mono_s": 0.0} for row in rows])
    assert folder.measured_window() is None
    write_lines(folder.stream / "events-0.jsonl", rows)
    assert folder.measured_window() == (11.0, 20.5)


@pytest.mark.parametrize("kind", ["measured_start", "measured_end"])
def test_without_a_start_or_an_end_there_is_no_measured_window(folder, kind):
    write_lines(folder.stream / "events-0.jsonl", [{"mono_s": 11.0, "kind": kind}])
    assert folder.measured_window() is None


@pytest.fixture
def recorded(folder):
    for rank in (0, 1):
        rows = [{"mono_s": 100.0 + step + rank / 10, "rank": rank, "step": step, "loss": None if step else 0.5} for step in range(3)]
        write_lines(folder.stream / f"steps-{rank}.jsonl", rows)
    write_lines(folder.stream / "links.jsonl", [{"mono_s": 99.0 + i / 100, "link": "bottleneck", "backlog_bytes": i} for i in range(300)])
    folder.event(95.0, "booted", "network up", {"seconds": 1.5})
    folder.event(96.0, "verified", "rates are right")
    return folder


def test_parquet_has_every_row_in_order_of_time_from_the_origin_on(recorded):
    recorded.to_parquet(100.0)
    steps = pd.read_parquet(recorded.path / "steps.parquet")
    assert steps.columns[0] == "t_s"
    assert "mono_s" not in steps.columns
    assert steps["t_s"].tolist() == pytest.approx([0.0, 0.1, 1.0, 1.1, 2.0, 2.1])
    assert list(zip(steps["step"], steps["rank"], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert steps["loss"].notna().tolist() == [True, True, False, False, False, False]
    links = pd.read_parquet(recorded.path / "links.parquet")
    assert links["backlog_bytes"].tolist() == list(range(300))
    assert links["t_s"].iloc[0] == pytest.approx(-1.0)


def test_rows_of_the_same_moment_are_in_order_of_rank(folder):
    for rank in range(4):
        write_lines(folder.stream / f"steps-{rank}.jsonl", [{"mono_s": float(step), "rank": rank, "step": step} for step in range(50)])
    folder.to_parquet(0.0)
    steps = pd.read_parquet(folder.path / "steps.parquet")
    assert list(zip(steps["step"], steps["rank"], strict=True)) == [(step, rank) for step in range(50) for rank in range(4)]


def test_the_data_of_events_is_json_in_parquet(recorded):
    recorded.to_parquet(100.0)
    events = pd.read_parquet(recorded.path / "events.parquet")
    assert [json.loads(data) for data in events["data"]] == [{"seconds": 1.5}, None]
    assert events["t_s"].tolist() == [-5.0, -4.0]


def test_a_table_without_rows_has_no_file_and_nothing_half_written_is_left(recorded):
    recorded.to_parquet(100.0)
    assert not (recorded.path / "evals.parquet").exists()
    assert {file.stem for file in recorded.path.glob("*.parquet")} == set(TABLES) - {"evals"}
    assert list(recorded.path.glob(".*")) == []


def test_the_json_lines_stay_until_they_are_dropped(recorded):
    recorded.to_parquet(100.0)
    assert (recorded.stream / "links.jsonl").exists()
    recorded.drop_stream()
    assert not recorded.stream.exists()
    assert (recorded.path / "links.parquet").exists()
