from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import load, queues, summarise
from analysis.queues import Direction


def test_waits_are_those_of_the_busiest_direction_while_training(tmp_path: Path) -> None:
    run = load(write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])).runs[0]
    samples = queues.training_samples(run)
    assert samples["t_s"].min() == 0
    found = queues.waits(run)  # a saw of ten equal steps from 0 to 45 kB, at 40 Mbit/s: 9 ms at its top
    assert found.mean_s == pytest.approx(0.0045)
    assert found.p95_s == pytest.approx(0.009)


def test_the_second_direction_is_there_only_if_it_held_anything(tmp_path: Path) -> None:
    run = load(write_experiment(tmp_path / "x", [FakeRun("none")])).runs[0]
    samples = queues.training_samples(run)
    there, back = Direction("bottleneck", "s1", "s2"), Direction("bottleneck", "s2", "s1")
    assert queues.directions(samples, [run]) == [there, back]
    assert queues.directions(samples.assign(backlog_bytes=samples["backlog_bytes"].where(samples["source"] == "s2", 0)), [run]) == [back]


def test_the_rate_of_the_moment_counts(tmp_path: Path) -> None:
    run = load(write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])).runs[0]
    samples = queues.training_samples(run)
    assert queues.busiest_waits(samples.assign(rate_bps=20e6)).p95_s == pytest.approx(0.018)
    assert math.isnan(queues.busiest_waits(samples.assign(rate_bps=0.0)).p95_s)
    assert math.isnan(queues.busiest_waits(samples.iloc[:0]).mean_s)


def test_the_summary_has_the_waits_and_follows_the_file(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000), FakeRun("3lc", status="running")])
    table = summarise(load(folder))
    assert table["queue_p95_s"].to_list() == pytest.approx([0.009, 0.008])
    path = folder / "none-train-0" / "links.parquet"
    frame = load(folder).runs[0].links.drop(columns=["run", "scheme"])
    frame.assign(backlog_bytes=0.0).to_parquet(path)
    os.utime(path, ns=(0, 1))
    assert summarise(load(folder))["queue_p95_s"].iloc[0] == 0
