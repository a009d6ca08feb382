"""Runs on real machines: the same figures without links and bottlenecks, and what they lack is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import load, words, write_report

NOTE = "eth0 of node2 sent 9.0 MB where the payload of rank 1 comes to 1.0 to 1.1"
MACHINES = {
    "spec": {"backend": "cluster", "workload": {"kind": "train"}, "topology": {"kind": "machines", "workers": 4}},
    "machines": [{"host": f"node{rank // 2}"} for rank in range(4)],
    "notes": [NOTE],
    "substituted": [],
    **dict.fromkeys(("network", "fidelity", "prediction", "verification")),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make two runs of four ranks on two machines, without a table of links."""
    made = write_experiment(tmp_path / "real", [FakeRun("none", manifest=MACHINES), FakeRun("3lc", step_s=0.1, manifest=MACHINES)])
    for links in made.glob("*/links.parquet"):
        links.unlink()
    return made


def test_the_report_draws_what_it_can_and_says_what_it_lacks(folder: Path) -> None:
    report = write_report(folder)
    drawn = {path.stem for path in report.paths if path.suffix == ".png"}
    assert {"accuracy_time", "throughput", "bytes_step", "overview", "breakdown"} <= drawn
    assert not drawn & {"backlog", "backlog_share"}
    assert report.skipped["backlog"] == "the queues between real machines are not sampled"
    assert report.problems == []


def test_such_a_run_is_complete_without_links_and_an_emulated_one_is_not(folder: Path) -> None:
    assert all(run.valid and run.links.empty for run in load(folder).runs)
    write_experiment(folder.parent / "emulated", [FakeRun("none")])
    next(folder.parent.glob("emulated/*/links.parquet")).unlink()
    assert load(folder.parent / "emulated").runs[0].status == "damaged"


def test_the_small_print_tells_the_machines_and_the_notes(folder: Path) -> None:
    results = load(folder)
    printed = words.small_print(results, results.runs)
    assert printed[0] == "Experiment real: 4 workers on 2 real machines, network not shaped."
    assert printed.count(f"{NOTE}.") == 1
    assert not any("Compute slowed" in sentence for sentence in printed)
    slowed = [replace(run, manifest={**run.manifest, "compute_inflation": 1.5}) for run in results.runs]
    assert any("(transport, decoding)" in sentence for sentence in words.small_print(results, slowed))


def test_a_run_that_never_ended_is_shown_as_such(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "real", [FakeRun("none", status="running", manifest=MACHINES)])
    (run,) = load(folder).runs
    assert (run.status, run.verdict) == ("running", "incomplete: killed or still going")
    write_report(folder)
