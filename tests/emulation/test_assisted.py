"""`netsense-sdn` follows the controller's telemetry, and does without it when it is old."""

import statistics

import pytest

from tests.emulation.scenarios import play
from tests.measuring import measured

pytestmark = pytest.mark.usefixtures("emulation")


@measured
def test_a_new_rate_is_followed_within_two_steps():
    seen = play("rate_step", room="live_runs", scheme="netsense-sdn", before_bps=40e6, after_bps=10e6, steps=40)
    assert seen["code"] == 0
    before = seen["ratios"][seen["first_after"] - 1]
    after = seen["ratios"][seen["first_after"] :]
    assert max(after[2:]) < 0.5 * before  # a quarter of the rate, and nothing else changed
    assert any(ratio == pytest.approx(statistics.median(after[2:]), rel=0.1) for ratio in after[:3])


def test_stale_telemetry_is_noticed_told_and_done_without_on_all_ranks_alike():
    seen = play("telemetry_lost", room="live_runs", scheme="netsense-sdn", steps=80)
    assert seen["code"] == 0
    first, lost, back = seen["told"][0]
    assert "telemetry is there" in first
    assert "s old: netsense-sdn senses by itself" in lost
    assert "telemetry is back" in back
    assert all(ratios == seen["ratios"][0] for ratios in seen["ratios"])
