from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import lines, texts, xy
from synthetic_results import FakeRun, rewrite, write_experiment

from analysis import load, queues, summarise
from analysis.figures import backlog, backlog_share, changes
from analysis.queues import Direction
from analysis.report.series import series_of

THERE, BACK = Direction("bottleneck", "s1", "s2"), Direction("bottleneck", "s2", "s1")
CHANGED = ((1.0, {"link": "bottleneck", "rate_bps": 40e6}),)


def test_waits_are_those_of_the_busiest_direction_while_training(tmp_path: Path) -> None:
    run = load(write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])).runs[0]
    samples = queues.training_samples(run)
    assert samples["t_s"].min() == 0
    found = queues.waits(run)  # a saw of ten equal steps from 0 to 45 kB, at 40 Mbit/s: 9 ms at its top
    assert found.mean_s == pytest.approx(0.0045)
    assert found.p95_s == pytest.approx(0.009)


@pytest.fixture
def samples(tmp_path: Path) -> pd.DataFrame:
    """Return those of one run: from s1 to s2 twice as much is held as back."""
    return queues.training_samples(load(write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])).runs[0])


def holding(samples: pd.DataFrame, there: float, back: float) -> pd.DataFrame:
    """Return the samples with so much of their backlog each way."""
    return samples.assign(backlog_bytes=samples["backlog_bytes"] * np.where(samples["source"] == "s1", there, 2 * back))


def test_the_direction_that_held_most_comes_first_and_the_way_back_if_it_held_anything(samples: pd.DataFrame) -> None:
    assert queues.directions([samples]) == [THERE, BACK]
    assert queues.directions([holding(samples, 0.1, 1)]) == [BACK, THERE]
    assert queues.directions([holding(samples, 0, 1)]) == [BACK]
    assert queues.directions([holding(samples, 0, 0)]) == [THERE]
    assert queues.directions([samples.iloc[:0]]) == []


def test_runs_are_weighed_together(samples: pd.DataFrame) -> None:
    assert queues.directions([samples, holding(samples, 0.1, 0.5)])[0] == THERE
    assert queues.directions([samples, holding(samples, 0.1, 5)])[0] == BACK


def test_a_backlog_counts_by_how_long_it_lasted_not_by_how_often_it_was_sampled() -> None:
    rows = [("s1", t / 100, 9000 if t < 50 else 0) for t in range(100)] + [("s1", float(t), 0) for t in range(1, 10)]
    rows += [("s2", float(t), 5000) for t in range(10)]
    uneven = pd.DataFrame(rows, columns=["source", "t_s", "backlog_bytes"]).assign(link="bottleneck")
    uneven["target"] = uneven["source"].map({"s1": "s2", "s2": "s1"})
    assert uneven.groupby("source")["backlog_bytes"].sum().to_dict() == {"s1": 450_000, "s2": 50_000}
    assert queues.directions([uneven]) == [BACK, THERE]


def test_of_several_bottlenecks_the_busiest_direction_counts_not_the_link_that_held_most_both_ways(samples: pd.DataFrame) -> None:
    other = holding(samples, 0, 0.6).assign(link="uplink")
    assert queues.directions([pd.concat([holding(samples, 0.5, 0.5), other])])[0] == Direction("uplink", "s2", "s1")


def test_table_and_figures_look_at_the_same_queue(tmp_path: Path) -> None:
    runs = [FakeRun("none", changes=CHANGED), FakeRun("3lc", step_s=0.1, changes=CHANGED)]
    folder = write_experiment(tmp_path / "x", runs)
    rewrite(
        folder / "none-train-0",
        "links",
        backlog_bytes=lambda links: links["backlog_bytes"] * np.where(links["source"] == "s1", 0.1, 2),
        sent_bytes=lambda links: links["sent_bytes"] * np.where(links["source"] == "s1", 1, 7),
    )
    results = load(folder)
    p95_ms = 1e3 * summarise(results)["queue_p95_s"].iloc[0]  # of the saw back, up to 40 kB
    assert p95_ms == pytest.approx(8)
    shares = backlog_share.draw(results)
    assert shares is not None
    assert f"No compression: {p95_ms:.2g} ms" in texts(shares)
    assert "How full the bottleneck's queue is, s2 → s1 or s1 → s2" in texts(shares)
    series = series_of(results.runs[0])
    assert series is not None
    assert max(series["backlog"]) == pytest.approx(40)
    assert max(series["sent"]) == pytest.approx(7 * 1000 * 8e-6 * 200 / 5, rel=0.01)
    alone = replace(results, runs=results.runs[:1])
    for figure in (changes.draw(alone), backlog.draw(alone)):
        assert figure is not None
        assert "s2 → s1" in texts(figure)
    assert np.nanmax(xy(lines(changes.draw(alone))["none-train-0 delivered"])[1]) == pytest.approx(max(series["sent"]), rel=0.01)


def test_the_rate_of_the_moment_counts(samples: pd.DataFrame) -> None:
    steps = pd.DataFrame({"rank": [0], "t_s": [0.0], "step_s": [5.0]})
    assert queues.summed_up(queues.busiest(samples.assign(rate_bps=20e6)), steps).p95_s == pytest.approx(0.018)
    assert math.isnan(queues.summed_up(queues.busiest(samples.assign(rate_bps=0.0)), steps).p95_s)
    assert math.isnan(queues.summed_up(queues.busiest(samples.iloc[:0]), steps).mean_s)


def test_evaluations_count_for_no_wait_and_no_share_of_the_time_but_are_drawn_over_time(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])
    run = folder / "none-train-0"
    rewrite(run, "steps", t_s=lambda steps: steps["t_s"] + np.where(steps["step"] < 10, 0.0, 5.0))  # from 2.5 to 7.5 s it evaluates
    rewrite(run, "links", t_s=lambda links: 2 * links["t_s"])
    rewrite(run, "links", backlog_bytes=lambda links: links["backlog_bytes"].where(~links["t_s"].between(2.5, 7.5, inclusive="neither"), 0))
    results = load(folder)
    assert len(queues.training_samples(results.runs[0])) == 2 * 200
    row = summarise(results).iloc[0]  # of 200 samples each way 101 lie in steps, and of these 90 find something waiting
    assert (row["queue_mean_s"], row["queue_p95_s"]) == pytest.approx((0.0045 * 100 / 101, 0.009))
    shares = backlog_share.draw(results)
    assert shares is not None
    assert xy(lines(shares)["none share"])[1][0] == pytest.approx(90 / 101)
    assert "Without the time of evaluations." in texts(shares).replace("\n", " ")
    over_time = backlog.draw(results)
    assert over_time is not None
    assert len(xy(lines(over_time)["none-train-0 s1 → s2"])[0]) == 200


def test_a_sample_is_within_a_step_from_its_begin_to_its_end() -> None:
    steps = pd.DataFrame({"rank": [0, 0, 0, 1], "t_s": [3.0, 1.0, np.nan, 0.0], "step_s": [np.nan, 1.0, 1.0, 9.0]})
    samples = pd.DataFrame({"t_s": [0.5, 1.0, 1.5, 2.0, 2.1, 3.5]})
    assert queues.within_steps(samples, steps)["t_s"].to_list() == [1.0, 1.5, 2.0]
    assert queues.within_steps(samples, steps[steps["rank"] == 1]).empty


def test_a_queue_that_was_sampled_between_steps_only_has_no_shares(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none")])
    rewrite(folder / "none-train-0", "steps", step_s=1e-4, t_s=lambda steps: steps["t_s"] + 0.01)
    results = load(folder)
    assert backlog_share.reason(results) == "no run sampled its bottleneck's queue during a step"
    assert summarise(results)["queue_mean_s"].isna().all()


def test_the_summary_has_the_waits_and_follows_the_file(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000), FakeRun("3lc", status="running")])
    table = summarise(load(folder))
    assert table["queue_p95_s"].to_list() == pytest.approx([0.009, 0.008])
    path = folder / "none-train-0" / "links.parquet"
    frame = load(folder).runs[0].links.drop(columns=["run", "scheme"])
    frame.assign(backlog_bytes=0.0).to_parquet(path)
    os.utime(path, ns=(0, 1))
    assert summarise(load(folder))["queue_p95_s"].iloc[0] == 0
