"""A run's folder: always whole on disk, from the first manifest to the Parquet files."""

from __future__ import annotations

import json
import os

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testbed.record import LINK_COLUMNS, RUNNERS_OWN, TABLES, RunFolder, itself, read_json, read_lines, read_links, write_json


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
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_several_processes_may_write_the_same_file_at_once(tmp_path):
    path = tmp_path / "a.json"
    children = []
    for child in range(4):
        children.append(os.fork())
        if children[-1] == 0:
            code = 1
            try:
                for _ in range(50):
                    write_json(path, {"x": [child] * 1000})
                    assert len(set(read_json(path)["x"])) == 1
                code = 0
            finally:
                os._exit(code)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


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


BACKGROUND = {"mono_s": 110.0, "seconds": 0.5, "entry": 0, "received_bytes": 5000, "retransmits": 3, "lost_packets": None}


@pytest.fixture
def recorded(folder):
    for rank in (0, 1):
        rows = [{"mono_s": 100.0 + step + rank / 10, "rank": rank, "step": step, "loss": None if step else 0.5} for step in range(3)]
        write_lines(folder.stream / f"steps-{rank}.jsonl", rows)
    write_lines(folder.stream / "links.jsonl", [{"mono_s": 99.0 + i / 100, "link": "bottleneck", "backlog_bytes": i} for i in range(300)])
    write_lines(folder.stream / "background.jsonl", [BACKGROUND])
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


def test_parquet_has_the_experiments_time_where_it_was_dilated(recorded):
    write_lines(recorded.stream / "links.jsonl", [{**LINK, "mono_s": 101.0, **OPENFLOW}])
    recorded.to_parquet(100.0, dilation=4.0)
    assert pd.read_parquet(recorded.path / "steps.parquet")["t_s"].tolist() == pytest.approx([0.0, 0.025, 0.25, 0.275, 0.5, 0.525])
    assert pd.read_parquet(recorded.path / "events.parquet")["t_s"].tolist() == [-1.25, -1.0]
    link = pd.read_parquet(recorded.path / "links.parquet").iloc[0]
    assert (link["t_s"], link["openflow_t_s"], link["rate_bps"], link["backlog_bytes"]) == (0.25, -0.125, 160e6, 1)


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


def test_what_a_protocol_does_not_have_is_null_in_background_whichever_protocols_there_are(recorded):
    udp = {**BACKGROUND, "mono_s": 111.0, "retransmits": None, "lost_packets": 7}
    for rows, retransmits in (([BACKGROUND], [3]), ([BACKGROUND, udp], [3, pd.NA]), ([udp], [pd.NA])):
        write_lines(recorded.stream / "background.jsonl", rows)
        recorded.to_parquet(100.0)
        schema = pq.read_schema(recorded.path / "background.parquet")
        assert {schema.field(name).type for name in ("received_bytes", "retransmits", "lost_packets")} == {pa.int64()}
        table = pd.read_parquet(recorded.path / "background.parquet")
        assert table["t_s"].iloc[0] == pytest.approx(rows[0]["mono_s"] - 100)
        assert table["retransmits"].astype("Int64").tolist() == retransmits


LINK = {
    "mono_s": 100.0,
    "link": "bottleneck",
    "source": "s1",
    "target": "s2",
    "queue": "",
    "rate_bps": 40000000,
    "queue_bytes": 9000,
    "sent_bytes": 5_000_000_000,
    "sent_packets": 4,
    "dropped_packets": 3,
    "overlimits": 2,
    "backlog_bytes": 1,
}
OPENFLOW = {"openflow_mono_s": 99.5, "port_tx_bytes": 2**52 + 1, "queue_tx_bytes": 2**33, "queue_tx_packets": 7}


def test_columns_that_only_some_rows_of_links_tell_are_whole_numbers_or_null_in_parquet(folder):
    write_lines(folder.stream / "links.jsonl", [LINK, {**LINK, "mono_s": 100.1, **OPENFLOW}, {**LINK, "mono_s": 100.2}])
    folder.to_parquet(90.0)
    columns = pq.read_table(folder.path / "links.parquet")
    for name, value in OPENFLOW.items():
        if name != "openflow_mono_s":
            assert columns[name].type == pa.int64()
            assert columns[name].to_pylist() == [None, value, None]
    assert columns["openflow_t_s"].to_pylist() == [None, pytest.approx(9.5), None]
    assert columns["t_s"].to_pylist() == pytest.approx([10.0, 10.1, 10.2])
    assert not {"mono_s", "openflow_mono_s"} & set(columns.column_names)
    assert columns.column_names[0] == "t_s"


def test_the_types_of_links_do_not_depend_on_what_was_told(folder):
    write_lines(folder.stream / "links.jsonl", [LINK])
    folder.to_parquet(90.0)
    columns = pq.read_table(folder.path / "links.parquet")
    for field in LINK_COLUMNS:
        if field.name in LINK and field.name != "mono_s":
            assert columns[field.name].to_pylist() == [LINK[field.name]]
        name = {"mono_s": "t_s", "openflow_mono_s": "openflow_t_s"}.get(field.name, field.name)
        kind = columns[name].type
        assert pa.types.is_string(kind) or pa.types.is_large_string(kind) if field.type == pa.string() else kind == field.type


def test_links_are_plain_numbers_where_every_row_tells_them(folder):
    write_lines(folder.stream / "links.jsonl", [LINK] * 3)
    links = folder.table("links")
    assert [str(links[name].dtype) for name in ("sent_bytes", "backlog_bytes", "rate_bps")] == ["int64", "int64", "float64"]
    assert str(links["port_tx_bytes"].dtype) == "Int64"
    assert (links["link"] == "bottleneck").all()


def test_a_link_whose_name_looks_like_a_date_keeps_it(tmp_path):
    write_lines(tmp_path / "links.jsonl", [{**LINK, "link": "2024-01-01"}])
    assert read_links(tmp_path / "links.jsonl")["link"].tolist() == ["2024-01-01"]


def test_a_missing_or_empty_or_just_begun_file_of_links_is_an_empty_table(tmp_path):
    path = tmp_path / "links.jsonl"
    assert read_links(path).empty
    for content in ("", '{"mono_s": 1'):
        path.write_text(content)
        assert read_links(path).empty


def test_of_links_too_only_the_lines_cut_off_in_mid_write_are_left_out(tmp_path):
    path, line = tmp_path / "links.jsonl", json.dumps({**LINK, **OPENFLOW})
    for content in (f"{line}\n{line}\n{line[:40]}", f"{line}\n{line[:40]}\n{line}\n", f"{line[:90]}{line}\n{line}\n{line}\n"):
        path.write_text(content)
        links = read_links(path)
        assert links["sent_bytes"].tolist() == [5_000_000_000] * 2
        assert links["port_tx_bytes"].tolist() == [2**52 + 1] * 2


def test_many_links_are_read_in_order(tmp_path):
    path = tmp_path / "links.jsonl"
    write_lines(path, [{**LINK, "sent_bytes": number} for number in range(20_000)])  # several of the reader's blocks
    assert read_links(path)["sent_bytes"].tolist() == list(range(20_000))


def test_the_json_lines_stay_until_they_are_dropped(recorded):
    recorded.to_parquet(100.0)
    assert (recorded.stream / "links.jsonl").exists()
    recorded.drop_stream()
    assert not recorded.stream.exists()
    assert (recorded.path / "links.parquet").exists()


def test_what_the_runner_writes_into_the_workers_folder_is_there_from_the_beginning(folder):
    assert {file.name for file in folder.stream.iterdir()} == set(RUNNERS_OWN)


def test_a_link_is_never_followed_where_others_may_have_laid_it(folder, tmp_path):
    (tmp_path / "elsewhere").write_text('{"mono_s": 1.0}\n')
    events = folder.stream / "events-runner.jsonl"
    events.unlink()
    events.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        folder.event(1.0, "booted", "network up")
    assert folder.rows("events") == []
    assert (tmp_path / "elsewhere").read_text() == '{"mono_s": 1.0}\n'


def test_a_pipe_that_nobody_serves_holds_up_no_reader(folder):
    os.mkfifo(folder.stream / "steps-0.jsonl")
    assert folder.rows("steps") == []


@pytest.fixture(params=["link", "pipe", "folder"])
def lay(request, tmp_path):
    """Return a function that lays what a worker may lay where a file is expected."""

    def laid(path, content='{"mono_s": 1.0}\n'):
        (tmp_path / "elsewhere").write_text(content)
        match request.param:
            case "link":
                path.symlink_to(tmp_path / "elsewhere")
            case "pipe":
                os.mkfifo(path)
            case _:
                path.mkdir()
        return path

    return laid


def test_what_is_no_file_is_not_opened_and_nothing_stays_open(lay, tmp_path):
    path, before = lay(tmp_path / "laid"), os.listdir("/proc/self/fd")
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        with pytest.raises(OSError, match="laid"):
            itself(str(path), flags)
    assert os.listdir("/proc/self/fd") == before


def test_what_is_no_file_is_read_as_nothing_and_holds_up_nobody(lay, folder):
    lay(folder.stream / "steps-0.jsonl")
    assert folder.rows("steps") == []
    assert read_links(lay(folder.stream / "links-laid.jsonl")).empty


def test_of_what_workers_lay_only_files_are_taken_for_what_a_worker_said(lay, folder):
    lay(folder.stream / "worker-0.json", '{"rank": 0}')
    for rank in ("1", "x", "", "\u00b2"):
        write_json(folder.stream / f"worker-{rank}.json", {"rank": rank})
    assert folder.workers() == [{"rank": "1"}]
