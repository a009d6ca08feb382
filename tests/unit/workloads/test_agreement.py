"""How measurements of all workers become one sample."""

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


@pytest.mark.parametrize("change", [{"ratio": 0.2}, {"step": 5}])
def test_ranks_that_disagree_are_found_out(change):
    with pytest.raises(Disagreement, match="rank 1"):
        combine([MINE, replace(MINE, **change)], 1.0)
