"""How measurements of all workers become one sample."""

import math
from dataclasses import replace

import pytest

from workloads.sensing.agreement import Disagreement, Measurement, combine

MINE = Measurement(step=4, ratio=0.1, dense_bytes=4000, bytes_sent=500, exchange_s=0.030, compute_s=0.100, step_s=0.140, retransmits=1)


def test_a_measurement_survives_its_message():
    assert Measurement.unpack(MINE.pack()) == MINE


def test_the_sample_takes_the_networks_time_without_the_waiting_and_the_slowest_beside_it():
    late = replace(MINE, bytes_sent=700, exchange_s=0.020, compute_s=0.120, retransmits=2)
    sample = combine([MINE, late], now_s=9.0)
    assert (sample.step, sample.now_s, sample.ratio, sample.dense_bytes, sample.bytes_sent) == (5, 9.0, 0.1, 4000, 700)
    assert (sample.exchange_s, sample.slowest_exchange_s, sample.retransmits) == (0.020, 0.030, 3)
    assert sample.compute_s == pytest.approx(0.110)


def test_a_kernel_that_does_not_tell_makes_the_sum_unknown():
    assert combine([MINE, replace(MINE, retransmits=-1)], 1.0).retransmits is None


def test_the_tightest_path_counts_and_the_longest_round_trip():
    told = {"rounds": 2.0, "available_bps": 40e6, "backlog_bytes": 9e3, "base_rtt_s": 0.010, "telemetry_age_s": 0.02}
    wide = replace(MINE, **told)
    tight = replace(MINE, **told | {"available_bps": 10e6, "backlog_bytes": 3e3, "base_rtt_s": 0.001, "telemetry_age_s": 0.05})
    assert Measurement.unpack(tight.pack()) == tight
    sample = combine([wide, tight], 1.0)
    assert (sample.available_bps, sample.backlog_bytes, sample.base_rtt_s) == (10e6, 3e3, 0.010)
    assert (sample.rounds, sample.telemetry_age_s) == (2.0, 0.05)


def test_one_worker_without_telemetry_leaves_all_without():
    told = replace(MINE, rounds=2.0, available_bps=40e6, backlog_bytes=9e3, base_rtt_s=0.010, telemetry_age_s=0.02)
    sample = combine([told, replace(MINE, rounds=2.0)], 1.0)
    assert (sample.available_bps, sample.backlog_bytes, sample.base_rtt_s) == (None, None, None)
    assert (sample.rounds, sample.telemetry_age_s) == (2.0, math.inf)


@pytest.mark.parametrize("change", [{"ratio": 0.2}, {"step": 5}])
def test_ranks_that_disagree_are_found_out(change):
    with pytest.raises(Disagreement, match="rank 1"):
        combine([MINE, replace(MINE, **change)], 1.0)
