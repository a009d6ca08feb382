from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from synthetic_results import empty

from analysis import frames, metrics_time


def steps(begins_s: list[float], step_s: list[float], workers: int = 2, **columns: object) -> pd.DataFrame:
    rows = [
        {"step": i, "rank": rank, "t_s": t, "step_s": s, "samples": 10}
        for i, (t, s) in enumerate(zip(begins_s, step_s, strict=True))
        for rank in range(workers)
    ]
    return pd.DataFrame(rows).reindex(columns=list(frames.COLUMNS["steps"])).assign(**columns)


def link(times_s: list[float], sent: list[float], rates: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"t_s": times_s, "sent_bytes": sent, "rate_bps": rates})


def test_windows_are_half_a_second_and_longer_where_there_would_be_too_many() -> None:
    assert metrics_time.window_edges_s(1.8).tolist() == pytest.approx([0, 0.6, 1.2, 1.8])
    assert metrics_time.window_edges_s(0.4).tolist() == pytest.approx([0, 0.4])
    assert len(metrics_time.window_edges_s(1e5)) == metrics_time.MOST_WINDOWS + 1
    assert len(metrics_time.window_edges_s(math.nan)) == 2


def test_throughput_over_time_shares_a_step_among_the_windows_it_lies_in() -> None:
    found = metrics_time.throughput_over_time(steps([0.0, 1.5], [1.5, 0.5]), np.array([0.0, 1.0, 2.0]))
    assert found.tolist() == pytest.approx([20 / 1.5, 0.5 * 20 / 1.5 + 20])


def test_evaluations_are_not_counted_as_slow_training() -> None:
    table = steps([0.0, 2.5], [0.5, 0.5])  # nothing from 0.5 to 2.5
    found = metrics_time.throughput_over_time(table, np.array([0.0, 1.0, 2.0, 3.0]))
    assert found[[0, 2]].tolist() == pytest.approx([40, 40])
    assert math.isnan(found[1])
    assert np.isnan(metrics_time.throughput_over_time(empty("steps"), np.array([0.0, 1.0]))).all()


def test_a_link_delivered_what_its_counter_grew_by() -> None:
    samples = link([0.0, 1.0, 2.0], [1000, 2000, 5000], [8e4] * 3)
    assert metrics_time.delivered_bps(samples, np.array([0.0, 1.0, 2.0])).tolist() == pytest.approx([8000, 24000])
    assert metrics_time.delivered_bps(samples, np.array([0.0, 1.0, 2.4])).tolist() == pytest.approx([8000, 24000])
    assert np.isnan(metrics_time.delivered_bps(samples, np.array([1.8, 3.0]))).all()
    classes = pd.concat([samples, samples])
    assert metrics_time.delivered_bps(classes, np.array([0.0, 1.0])).tolist() == pytest.approx([16000])


def test_the_configured_rate_is_told_where_it_changes() -> None:
    times, rates = metrics_time.configured_bps(link([0.0, 1.0, 2.0, 3.0], [0] * 4, [1e6, 1e6, 5e6, 1e6]))
    assert times.tolist() == [0.0, 2.0, 3.0]
    assert rates.tolist() == [1e6, 5e6, 1e6]


def test_the_exchange_is_that_of_the_slowest_worker() -> None:
    table = steps([0.0, 1.0], [1.0, 1.0], compute_s=0.2, ratio=0.1, exchange_s=[0.5, 0.7, 0.6, 0.4])
    assert metrics_time.exchange_over_time(table)["exchange_s"].to_list() == [0.7, 0.6]


def test_bits_around_a_ring_are_32_without_compression() -> None:
    dense = 1000.0
    table = steps([0.0, 1.0], [1.0, 1.0], workers=4, dense_bytes=dense)
    table["bytes_sent"] = 2 * 3 / 4 * dense / (1 + table["step"])
    assert metrics_time.bits_per_value(table, 4, server=False)["both"].to_list() == pytest.approx([32, 16])


def test_pushes_and_pulls_of_a_server_are_those_of_the_other_workers() -> None:
    table = steps([0.0], [1.0], workers=3, dense_bytes=4000.0)  # 1000 values
    table["bytes_sent"] = [900.0, 100.0, 150.0]  # worker 0 is the server
    table["bytes_received"] = [250.0, 450.0, 450.0]
    bits = metrics_time.bits_per_value(table, 3, server=True)
    assert bits.loc[0].to_dict() == pytest.approx({"push": 1.0, "pull": 3.6})


def test_nothing_sent_has_no_bits() -> None:
    assert metrics_time.bits_per_value(steps([0.0], [1.0], bytes_sent=0.0, dense_bytes=0.0), 2, server=False).empty


def test_bytes_so_far_are_counted_by_steps_done() -> None:
    table = steps([0.0, 1.0], [1.0, 1.0], bytes_sent=[10.0, 30.0, 100.0, 100.0])
    assert metrics_time.bytes_so_far(table).to_dict() == {0: 0.0, 1: 20.0, 2: 120.0}
