"""Tidy frames: every table of every run in one frame, the cell beside each row, only what is asked for read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from stored_results import DATA
from synthetic_results import FakeRun, write_experiment

from analysis import frames, load
from analysis.stacking import stack

CONTEXT = ["run", "scheme", "scheme_label", "workload"]


def swept(tmp_path: Path) -> Path:
    runs = [FakeRun(scheme, cell={"topology.bottleneck.rate": rate}) for rate in (1e7, 4e7) for scheme in ("none", "topk-0.1")]
    return write_experiment(tmp_path / "swept", runs)


def test_runs_are_one_row_each_with_their_cell_in_si_units(tmp_path: Path) -> None:
    runs = load(swept(tmp_path)).frames.runs
    assert runs["topology.bottleneck.rate_bps"].to_list() == [1e7, 1e7, 4e7, 4e7]
    assert runs["throughput_samples_s"].notna().all()


@pytest.mark.parametrize("table", ["steps", "evals", "links", "events"])
def test_every_table_has_run_and_cell_in_front(tmp_path: Path, table: str) -> None:
    results = load(swept(tmp_path))
    frame = getattr(results.frames, table)
    assert list(frame.columns) == [*CONTEXT, "topology.bottleneck.rate_bps", "repeat", "valid", "apart", *frames.all_columns(table)]
    assert frame.groupby("run").size().to_dict() == {run.slug: len(getattr(run, table)) for run in results.runs}
    assert set(frame.loc[frame["topology.bottleneck.rate_bps"] == 1e7, "run"]) == {run.slug for run in results.runs[:2]}


def test_rows_of_runs_that_stand_apart_say_so_in_every_table(tmp_path: Path) -> None:
    stranger = FakeRun("topk-0.1", manifest={"experiment": "other"})
    results = load(write_experiment(tmp_path / "quick", [FakeRun("none"), FakeRun("none", repeat=1), stranger]))
    for table in ("steps", "evals", "links", "events"):
        frame = getattr(results.frames, table)
        assert frame["apart"].dtype == bool
        assert frame.groupby("run", observed=True)["apart"].unique().map(list).to_dict() == {
            run.slug: [run.slug == stranger.slug] for run in results.runs
        }
    assert results.frames.links["valid"].all()


def test_schemes_are_one_row_a_cell_with_the_medians_of_their_repeats_and_no_run_that_stands_apart(tmp_path: Path) -> None:
    cells = [{"topology.bottleneck.rate": rate} for rate in (1e7, 4e7)]
    runs = [FakeRun("none", step_s=step_s, repeat=n, cell=cell) for cell in cells for n, step_s in enumerate((0.2, 0.25, 0.4))]
    runs.append(FakeRun("topk-0.1", cell=cells[0], manifest={"experiment": "other"}))
    schemes = load(write_experiment(tmp_path / "quick", runs)).frames.schemes
    assert schemes["topology.bottleneck.rate_bps"].to_list() == [1e7, 4e7]
    assert schemes["throughput_samples_s"].to_list() == pytest.approx([512, 512])
    assert schemes[["repeats", "left_out"]].to_numpy().tolist() == [[3, 0], [3, 0]]
    assert (schemes["speedup_low"] < 1).all() and (schemes["speedup_high"] > 1).all()
    assert not {"run", "repeat", "seed", "status", "reason", "apart"} & set(schemes.columns)


def test_a_killed_run_and_a_missing_one_stand_beside_the_others(folder: Path) -> None:
    tables = load(folder).frames
    assert tables.runs.set_index("run").loc["dc2-train-0", "status"] == "missing"
    links = tables.links.set_index("run")
    assert len(links.loc["3lc-train-0"]) == len(links.loc["none-train-0"]) == 2 * 205
    assert not tables.steps.loc[tables.steps["run"] == "3lc-train-0", "valid"].any()


def test_columns_runs_and_rows_can_be_chosen(folder: Path) -> None:
    tables = load(folder).frames
    chosen = tables.read("links", ["t_s", "backlog_bytes"], runs=["3lc-train-0", "none-train-0"], filters=[("source", "==", "s1")])
    assert list(chosen.columns) == [*CONTEXT, "repeat", "valid", "apart", "t_s", "backlog_bytes"]
    assert chosen["run"].value_counts().to_dict() == {"3lc-train-0": 205, "none-train-0": 205}
    assert chosen["run"].iloc[0] == "3lc-train-0"
    assert tables.read("steps", runs=[]).empty


def test_the_whole_is_what_its_runs_are_one_by_one(folder: Path) -> None:
    tables = load(folder).frames
    each = list(tables.each("links"))
    assert len(each) == 4
    pd.testing.assert_frame_equal(pd.concat(each, ignore_index=True).astype(str), tables.links.astype(str))


def test_what_is_not_there_is_told_with_what_is(folder: Path) -> None:
    tables = load(folder).frames
    with pytest.raises(KeyError, match="no table queues; there are runs, steps"):
        tables.read("queues")
    with pytest.raises(KeyError, match="links has no column backlog; it has t_s"):
        tables.read("links", ["backlog"])
    with pytest.raises(KeyError, match="has no run dc2-train-0; it has none-train-0"):
        tables.read("links", runs="dc2-train-0")


def test_frames_can_be_written_to_and_leave_the_files_alone(folder: Path) -> None:
    tables = load(folder).frames
    frame = tables.steps
    frame.loc[0, "step_s"] = 99.0
    one = load(folder).runs[0].steps
    one.loc[0, "step_s"] = 99.0
    assert load(folder).frames.steps.loc[0, "step_s"] == 0.25


def test_names_are_categories_shared_by_runs_with_different_links(folder: Path) -> None:
    path = folder / "none-train-0" / "links.parquet"
    links = pd.read_parquet(path)
    links["link"] = "uplink"
    links.loc[3, "link"] = None
    links.to_parquet(path)
    frame = load(folder).frames.links
    assert frame["link"].value_counts(dropna=False).to_dict() == {"bottleneck": 3 * 410, "uplink": 409, np.nan: 1}


def test_columns_of_older_results_are_empty_and_no_damage(folder: Path) -> None:
    results = load(folder)
    assert results.frames.steps["tcp_rtt_s"].isna().all()
    assert results.frames.links["queue"].isna().all()
    assert results.problems == []


def test_a_table_of_an_older_testbed_is_shown_as_far_as_it_goes(folder: Path) -> None:
    run = folder / "none-train-0"
    manifest = json.loads((run / "manifest.json").read_text())
    del manifest["schema"]
    (run / "manifest.json").write_text(json.dumps(manifest))
    pd.read_parquet(run / "steps.parquet").drop(columns="wire_bytes_sent").to_parquet(run / "steps.parquet")
    results = load(folder)
    row = results.frames.runs.set_index("run").loc["none-train-0"]
    assert row["throughput_samples_s"] == pytest.approx(512)
    assert np.isnan(row["wire_bytes_per_step"])
    assert results.problems == ["written by an older testbed, what it did not record is left empty: none-train-0"]


def test_millions_of_lines_of_a_killed_run_are_read_as_one_by_one(folder: Path) -> None:
    """A damaged line takes the slow way, so both must agree on the rest."""
    quick = load(folder).frames.read("links", runs="3lc-train-0")
    path = folder / "3lc-train-0" / "stream" / "links.jsonl"
    path.write_text("garbage\n" + path.read_text())
    results = load(folder)
    slow = results.frames.read("links", runs="3lc-train-0")
    pd.testing.assert_frame_equal(quick.drop(columns="valid"), slow.drop(columns="valid"))
    assert results.problems == ["run 3lc-train-0: stream/links.jsonl has 1 unreadable line(s), left out"]


def test_a_run_that_grows_while_it_is_read_loses_nothing(folder: Path) -> None:
    table = load(folder).runs[0].read("links")
    columns, lengths = stack([table, table], most_rows=len(table))
    assert lengths == [410, 410]
    assert len(columns["t_s"]) == len(columns["link"]) == 820


def test_a_notebook_shows_what_there_is(folder: Path) -> None:
    tables = load(folder).frames
    assert "runs 4" in repr(tables)
    assert "links 1,64" in tables._repr_html_()


def test_regrets_and_background_traffic_are_frames_too() -> None:
    regrets = load(DATA / "train").frames.regrets
    assert regrets[["scheme", "oracle"]].to_numpy().tolist() == [["netsense", "topk-0.01"]]
    assert regrets["regret"].item() == pytest.approx(regrets["median_s"].item() / regrets["oracle_s"].item() - 1)
    background = load(DATA / "rivals").frames.background
    assert set(background["scheme"]) == {"none", "topk-0.1"}
    assert background["goodput_bps"].gt(0).any()
    assert load(DATA / "train").frames.background.empty
