from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from synthetic_results import empty

from analysis import frames, metrics


def steps(step_s: list[float], workers: int = 2, samples: int = 10) -> pd.DataFrame:
    rows = [{"step": i, "rank": rank, "step_s": s, "samples": samples} for i, s in enumerate(step_s) for rank in range(workers)]
    return pd.DataFrame(rows).reindex(columns=list(frames.COLUMNS["steps"]))


def evals(points: list[tuple[float, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(points, columns=["train_s", "accuracy"]).reindex(columns=list(frames.COLUMNS["evals"]))
    frame["final"] = [False] * (len(points) - 1) + [True]
    return frame


def test_throughput_is_all_samples_over_worker_0s_clock() -> None:
    table = steps([0.5, 1.0, 0.5])
    assert metrics.throughput_samples_s(table) == pytest.approx(60 / 2.0)
    ahead = table[~((table["rank"] == 0) & (table["step"] == 2))]  # killed while worker 0 was in its last step
    assert metrics.throughput_samples_s(ahead) == pytest.approx(40 / 1.5)


def test_an_empty_table_gives_nan_everywhere() -> None:
    table = empty("steps")
    for function in (
        metrics.throughput_samples_s,
        metrics.mean_step_s,
        metrics.bytes_per_step,
        metrics.samples_per_step,
        metrics.bytes_sent,
    ):
        assert math.isnan(function(table))
    assert math.isnan(metrics.median_part_s(table, "encode"))
    assert math.isnan(metrics.compression_ratio(table, 4))
    assert math.isnan(metrics.final_accuracy(empty("evals")))
    assert math.isnan(metrics.throughput_interval(table).low)
    assert all(math.isnan(value) for value in metrics.breakdown_s(table).values())


def test_the_background_counts_what_it_delivered_in_the_measured_part_over_all_of_it() -> None:
    table = steps([0.5] * 8).assign(t_s=lambda frame: 0.5 * frame["step"])  # 4 s
    rows = [(-1.0, 0.5, 9000), (-0.25, 0.5, 1000), (1.0, 0.5, 2000), (1.0, 0.5, 500), (3.75, 0.5, 4000), (4.5, 0.5, 9000)]
    background = pd.DataFrame(rows, columns=["t_s", "seconds", "received_bytes"])
    assert metrics.background_bps(background, table) == pytest.approx((500 + 2000 + 500 + 2000) * 8 / 4.0)
    assert metrics.background_bps(background.assign(received_bytes=0.0), table) == 0.0
    assert math.isnan(metrics.background_bps(empty("background"), table))
    assert math.isnan(metrics.background_bps(background, empty("steps")))


def test_the_interval_of_a_steady_run_is_a_point_and_of_a_noisy_one_holds_the_mean() -> None:
    steady = metrics.throughput_interval(steps([0.25] * 40))
    assert (steady.low, steady.high) == pytest.approx((80, 80))
    noisy_steps = steps(list(np.random.default_rng(1).uniform(0.1, 0.4, 200)))
    noisy = metrics.throughput_interval(noisy_steps)
    assert noisy.low < metrics.throughput_samples_s(noisy_steps) < noisy.high
    assert noisy.method == "95 % bootstrap over 1 s windows"
    assert noisy == metrics.throughput_interval(noisy_steps)


def test_few_windows_have_students_interval_and_from_ten_on_a_bootstrap() -> None:
    few = metrics.throughput_interval(steps([1.0, 1.25, 2.0]))  # a window each, of 20, 16 and 10 samples/s
    half = 4.303 * math.sqrt(76 / 9)  # their mean is 46/3, their variance 76/3
    assert (few.low, few.high) == pytest.approx((46 / 3 - half, 46 / 3 + half))
    methods = {count: metrics.throughput_interval(steps([1.0] * count)).method for count in (2, 3, 9, 10)}
    assert methods == {2: "", **dict.fromkeys((3, 9), "95 % Student t over 1 s windows"), 10: "95 % bootstrap over 1 s windows"}


@pytest.mark.parametrize("windows", range(3, 10))
def test_of_few_windows_the_interval_holds_the_truth_as_often_as_it_says(windows: int) -> None:
    """Steps of 1.5 s with normal noise are a window each; a bootstrap of 3 held their mean in 74 % of cases."""
    random = np.random.default_rng(windows)
    table, cases = steps([1.5] * windows), 300
    held = 0
    for step_s in random.normal(1.5, 0.05, (cases, windows)):
        interval = metrics.throughput_interval(table.assign(step_s=np.repeat(step_s, 2)))
        held += interval.low <= 20 / 1.5 <= interval.high
    assert held >= 0.9 * cases


def test_two_seconds_are_too_short_for_an_interval() -> None:
    assert metrics.throughput_interval(steps([0.5] * 4)).method == ""


def test_the_interval_over_repeats_is_students() -> None:
    interval = metrics.repeats_interval([90.0, 100.0, 110.0])
    assert interval.low == pytest.approx(100 - 4.303 * 10 / math.sqrt(3))
    assert interval.method == "95 % Student t over 3 repeats"
    assert metrics.repeats_interval([90.0]).method == ""


def test_the_median_of_few_repeats_has_students_interval_and_of_many_that_of_their_order() -> None:
    few = [90.0, 100.0, 130.0]
    assert metrics.median_interval(few) == metrics.repeats_interval(few)
    assert metrics.median_interval(few).low <= 100.0 <= metrics.median_interval(few).high
    six = metrics.median_interval([6.0, 1.0, 5.0, 2.0, 4.0, 3.0])  # least and most miss it with 2/64
    assert (six.low, six.high, six.method) == (1.0, 6.0, "95 % of the median over 6 repeats")
    nine = metrics.median_interval([float(value) for value in range(1, 10)])  # the second ones with 20/512, the third with 92/512
    assert (nine.low, nine.high) == (2.0, 8.0)


def test_a_repeat_that_never_got_there_leaves_the_interval_open_or_untold() -> None:
    never = math.inf
    assert metrics.median_interval([1.0, 2.0, never]) == metrics.Interval()  # it has no mean
    six = metrics.median_interval([6.0, 1.0, 5.0, never, 4.0, 3.0])
    assert six.low == 1.0 and math.isnan(six.high) and six.method == "95 % of the median over 6 repeats"
    nine = metrics.median_interval([float(value) for value in range(1, 9)] + [never])
    assert (nine.low, nine.high) == (2.0, 8.0)


def test_idle_is_the_wait_for_the_last_worker_to_be_ready_and_the_parts_add_up() -> None:
    table = steps([1.0, 1.0]).assign(encode_s=0.1, decode_s=0.1)
    slow = table["rank"] == 1
    table["t_s"] = table["step"] * 1.0 + np.where(slow, 0.05, 0.0)
    table["compute_s"] = np.where(slow, 0.4, 0.2)
    table["exchange_s"] = 0.8 - table["compute_s"]
    assert metrics.idle_s(table).to_list() == pytest.approx([0.25, 0.0, 0.25, 0.0])
    parts = metrics.breakdown_s(table)
    assert list(parts) == list(metrics.PARTS)
    assert parts == pytest.approx({"compute": 0.3, "encode": 0.1, "idle": 0.125, "exchange": 0.375, "decode": 0.1})
    assert sum(parts.values()) == pytest.approx(1.0)


def test_idle_is_never_longer_than_the_exchange() -> None:
    table = steps([1.0]).assign(compute_s=[0.1, 0.9], encode_s=0.0, exchange_s=[0.3, 0.1], decode_s=0.0, t_s=0.0)
    assert metrics.idle_s(table).to_list() == pytest.approx([0.3, 0.0])


def test_what_a_worker_sent_in_all_is_the_mean_of_the_workers() -> None:
    table = steps([1.0, 1.0]).assign(bytes_sent=[100.0, 300.0, 100.0, 300.0])
    assert metrics.bytes_sent(table) == pytest.approx(400.0)


def test_the_compression_ratio_is_against_a_ring() -> None:
    table = steps([0.1]).assign(dense_bytes=1000.0, bytes_sent=150.0)
    assert metrics.compression_ratio(table, 4) == pytest.approx(1500 / 150)
    assert math.isnan(metrics.compression_ratio(table, 1))
    assert math.isnan(metrics.compression_ratio(table.assign(bytes_sent=0.0), 4))


def test_time_to_accuracy_is_the_first_evaluation_there_not_between_two() -> None:
    table = evals([(10, 0.5), (20, 0.8), (30, 0.7), (40, 0.9)])
    assert metrics.time_to_accuracy_s(table, 0.75) == 20
    assert metrics.time_to_accuracy_s(table, 0.8) == 20
    assert math.isnan(metrics.time_to_accuracy_s(table, 0.95))
    assert math.isnan(metrics.time_to_accuracy_s(table, math.nan))


def test_the_target_is_the_experiments_or_95_percent_of_none() -> None:
    assert metrics.target_accuracy(0.7, [0.9]) == 0.7
    assert metrics.target_accuracy(None, [0.8, 0.9, math.nan]) == pytest.approx(0.855)
    assert math.isnan(metrics.target_accuracy(None, []))


def test_downsampling_keeps_the_spike_where_it_was() -> None:
    x = np.arange(10_000, dtype=float)
    y = np.zeros(10_000)
    y[4321] = 7
    few_x, few_y = metrics.downsample_max(x, y, 100)
    assert len(few_x) == 100
    assert few_x[few_y.argmax()] == 4321
    assert few_y.max() == 7
