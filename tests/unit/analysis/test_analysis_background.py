from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from synthetic_results import RATE_BPS, FakeRun, write_experiment

from analysis import background, load, summarise
from analysis.load import Run

TCP, UDP = 1514 / 1448, 1514 / 1472  # of a full frame at MTU 1500, bytes on the wire for each of payload
PATHS = {"paths": [["h5", "s1", "s2", "h6"], ["h1", "s1", "s2", "h6"], ["h6", "s2", "s1", "h5"], ["h1", "s1", "h5"]]}


def run_with(folder: Path, rows: list[dict[str, Any]], sent_bps: float = 30e6) -> Run:
    """Return a run of 5 s whose bottleneck sends so much, beside background traffic."""
    write_experiment(folder, [FakeRun("none", step_s=0.25, manifest=PATHS)])
    run = load(folder).runs[0]
    links = run.links.drop(columns=["run", "scheme"])
    links.assign(sent_bytes=(links["t_s"] + 1) * sent_bps / 8).to_parquet(run.folder / "links.parquet")
    pd.DataFrame(rows).to_parquet(run.folder / "background.parquet")
    return run


def rows(bps: float = 10e6, source: str = "h5", target: str = "h6", **more: Any) -> list[dict[str, Any]]:
    return [{"t_s": t, "seconds": 0.5, "source": source, "target": target, "goodput_bps": bps, **more} for t in (1.0, 1.5, 3.5, 4.0)]


def jain(one: float, other: float) -> float:
    return (one + other) ** 2 / (2 * (one**2 + other**2))


def test_without_background_traffic_nothing_is_claimed(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none")])
    assert background.read(load(folder).runs[0]).empty
    assert summarise(load(folder))[["background_share", "background_fairness"]].isna().all(axis=None)


def test_share_and_fairness_are_of_the_bottleneck_on_its_path(tmp_path: Path) -> None:
    run = run_with(tmp_path / "x", rows(bps=10e6), sent_bps=30e6)  # 10 beside 20, of 40
    found = background.fairness(run)
    assert found.share == pytest.approx(10e6 / RATE_BPS)
    assert found.jain == pytest.approx(jain(10 * TCP, 30 - 10 * TCP))
    assert summarise(load(tmp_path / "x"))["background_share"].item() == pytest.approx(0.25)


def test_headers_of_the_background_are_not_credited_to_the_training(tmp_path: Path) -> None:
    both = rows(bps=10e6, protocol="tcp") + rows(bps=8e6, protocol="udp")
    got = 10 * TCP + 8 * UDP
    full = background.fairness(run_with(tmp_path / "x", both, sent_bps=1e6 * got))  # training sends nothing
    assert full.jain == pytest.approx(0.5)
    assert full.share == pytest.approx(18e6 / RATE_BPS)  # as received
    assert background.fairness(run_with(tmp_path / "y", both, sent_bps=2e6 * got)).jain == pytest.approx(1.0)


def test_without_an_mtu_the_share_is_told_and_fairness_is_not(tmp_path: Path) -> None:
    run = run_with(tmp_path / "x", rows(bps=10e6))
    old = Run(run.folder, run.manifest | {"network": {**run.manifest["network"], "mtu": None}})
    assert background.fairness(old).share == pytest.approx(0.25)
    assert math.isnan(background.fairness(old).jain)


def test_flows_that_meet_no_bottleneck_have_no_share(tmp_path: Path) -> None:
    found = background.fairness(run_with(tmp_path / "x", rows(source="h1", target="h5")))
    assert math.isnan(found.share) and math.isnan(found.jain)


def test_entries_at_the_same_time_add_up(tmp_path: Path) -> None:
    one = run_with(tmp_path / "x", rows(bps=4e6, entry=0) + rows(bps=6e6, entry=1))
    other_host = run_with(tmp_path / "y", rows(bps=4e6) + rows(bps=6e6, source="h1"))
    for run in (one, other_host):
        assert background.fairness(run).share == pytest.approx(10e6 / RATE_BPS)


def test_of_two_directions_the_one_that_left_it_least_counts(tmp_path: Path) -> None:
    run = run_with(tmp_path / "x", rows(bps=4e6) + rows(bps=2e6, source="h6", target="h5"))
    assert background.fairness(run).share == pytest.approx(2e6 / RATE_BPS)


def test_periods_are_parted_by_pauses_and_say_who_sends(tmp_path: Path) -> None:
    run = run_with(tmp_path / "x", rows(flows=4))
    assert background.periods(background.read(run)) == [(1.0, 4.5, "4 flows h5 → h6")]
    late = run_with(tmp_path / "y", [row | {"t_s": row["t_s"] + 0.2 * (row["t_s"] > 3)} for row in rows()])
    assert background.periods(background.read(late)) == [(1.0, 2.0, "h5 → h6"), (pytest.approx(3.7), pytest.approx(4.7), "h5 → h6")]


def test_what_was_received_is_spread_over_windows_and_unknown_outside(tmp_path: Path) -> None:
    whole = [{"t_s": t, "seconds": 1.0, "source": "h5", "target": "h6", "goodput_bps": 8e6} for t in (1.0, 2.0, 3.0)]
    intervals = background.read(run_with(tmp_path / "x", whole))
    assert background.received_bps(intervals, np.array([0.0, 1.0, 1.5, 4.0, 5.0])).tolist() == pytest.approx(
        [np.nan, 8e6, 8e6, np.nan], nan_ok=True
    )


def test_what_is_before_or_after_the_training_is_left_out(tmp_path: Path) -> None:
    outside = [{"t_s": t, "seconds": 0.5, "source": "h5", "target": "h6", "goodput_bps": 1e6} for t in (-3.0, 6.0)]
    assert background.read(run_with(tmp_path / "x", outside)).empty


def test_a_file_that_is_something_else_is_no_background(tmp_path: Path) -> None:
    run = run_with(tmp_path / "x", [{"t_s": 1.0}])
    assert background.read(run).empty
    (run.folder / "background.parquet").write_bytes(b"broken")
    (again,) = load(tmp_path / "x").runs
    assert background.read(again).empty
    assert again.status == "damaged"
