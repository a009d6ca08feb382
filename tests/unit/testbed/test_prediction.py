"""The prediction beside each run, worked out by hand."""

from __future__ import annotations

import pytest

from testbed.prediction import predicted_step_s
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(4, LinkSpec(40e6, 0.005), LinkSpec(100e6))


def test_a_step_takes_its_compute_its_bytes_at_the_bottlenecks_rate_and_a_round_trip_a_round():
    sent = 1448 * 1000  # 1000 full segments, 1514 bytes each on the wire
    assert predicted_step_s(NETWORK, 1500, 0.060, "ring", [sent] * 4, rounds=6) == pytest.approx(0.060 + 1_514_000 * 8 / 40e6 + 6 * 0.010)


def test_large_frames_have_less_overhead():
    sent = 8948 * 100
    assert predicted_step_s(NETWORK, 9000, 0.0, "ring", [sent] * 4, rounds=0) == pytest.approx(901_400 * 8 / 40e6)


def test_a_step_that_sends_nothing_takes_its_compute():
    assert predicted_step_s(NETWORK, 1500, 0.060, "ring", [0.0] * 4, rounds=0) == 0.060


def test_with_a_server_pushes_and_then_pulls_cross_the_bottleneck():
    push, pull = 1448 * 100.0, 1448 * 50.0
    # h1 is the server; h3 and h4 are on the other side: the bottleneck carries two pushes one way, then two pulls the other way
    expected_s = 2 * 151_400 * 8 / 40e6 + 2 * 75_700 * 8 / 40e6 + 3 * 0.010
    assert predicted_step_s(NETWORK, 1500, 0.0, "server", [3 * pull, push, push, push], rounds=3) == pytest.approx(expected_s)
