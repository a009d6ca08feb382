"""The numbers that make results trustworthy, measured: rates, round-trip times, queues, set-up times.

Each bar is the product's promise; a machine so busy that it misses one gets more tries, and one too slow for a rate is told so.
"""

import pytest

from testbed.emulation.usage import Stolen
from testbed.machine import MOST_STOLEN
from tests.emulation.scenarios import play, teardown_s
from tests.measuring import measured

pytestmark = [pytest.mark.usefixtures("emulation"), measured]

RATE_TOLERANCE = 0.015
MANY_FRAMES_S = 5000  # through the bottleneck: a slow machine carries them, and has no time left to watch them
CELLS = [(10e6, 1500), (50e6, 1500), (100e6, 1500), (100e6, 9000), (200e6, 9000)]


def at_best_of_three(trial, good):
    for _ in range(2):
        seen = trial()
        if good(seen):
            return seen
    return trial()


@pytest.mark.parametrize(("rate_bps", "mtu"), CELLS, ids=lambda value: f"{value:g}")
def test_a_backlogged_bottleneck_delivers_its_rate_through_the_switches_and_loses_nothing_unseen(rate_bps, mtu):
    def trial():
        return play("overloaded_dumbbell", workers=4, rate_bps=rate_bps, delay_s=0.005, mtu=mtu, access_bps=2 * rate_bps, seconds=1.5)

    seen = at_best_of_three(trial, lambda s: s["coverage"] > 0.5 and s["value"] is not None and abs(s["value"] - 1) <= RATE_TOLERANCE)
    assert seen["dropped"] > 0
    assert seen["sent"] == seen["received"] + seen["lost"]
    assert seen["lost"] / 2 < seen["dropped"] < 2 * seen["lost"]  # by full queues, and not elsewhere
    assert seen["socket_drops"] == 0
    if seen["coverage"] <= 0.5 and rate_bps / (8 * mtu) > MANY_FRAMES_S:
        pytest.skip(f"this machine is too slow to watch a bottleneck of {rate_bps / 1e6:.0f} Mbit/s: samples cover {seen['coverage']:.0%}")
    assert seen["value"] == pytest.approx(1, abs=RATE_TOLERANCE)
    assert seen["coverage"] > 0.5
    assert seen["queue_bytes"] - mtu - 14 < seen["largest_backlog_bytes"] <= seen["queue_bytes"]


@pytest.mark.parametrize(
    ("kind", "limit_s", "delay_s"), [("dumbbell", 5, 0.001), ("dumbbell", 5, 0.025), ("star", 10, 0.005)], ids=lambda value: str(value)
)
def test_eight_hosts_are_up_and_verified_in_time_with_every_rate_and_rtt_in_tolerance(kind, limit_s, delay_s):
    def trial():
        return play("verified", kind=kind, workers=8, rate_bps=40e6, delay_s=delay_s, mtu=1500, access_bps=100e6)

    stolen = Stolen()
    seen = at_best_of_three(trial, lambda s: s["total_s"] < limit_s)
    assert seen["boot_s"] < 2
    for rate in seen["rates"]:
        assert rate["measured_bps"] == pytest.approx(rate["configured_bps"], rel=RATE_TOLERANCE)
        assert rate["largest_backlog_bytes"] > 0.95 * rate["queue_bytes"] - 1514
    for rtt in seen["rtts"]:
        assert abs(rtt["measured_s"] - rtt["configured_s"]) <= max(0.5e-3, 0.05 * rtt["configured_s"])
    assert seen["socket_drops"] == 0
    if seen["total_s"] >= limit_s and stolen.share() > MOST_STOLEN:  # links that a standing machine spoilt are measured again
        pytest.skip(f"verified in {seen['total_s']:.1f} s, while this machine's host took {stolen.share():.1%} of its processors away")
    assert seen["total_s"] < limit_s


def test_verification_leaves_none_of_its_frames_under_way():
    """No switch forwards them, and a run would count those that arrive late as lost."""
    seen = play("verified", kind="dumbbell", workers=2, rate_bps=2e6, delay_s=0.1, mtu=1500, access_bps=40e6)
    assert seen["lost_afterwards"] == 0


def test_eight_hosts_are_torn_down_in_time():
    assert teardown_s(workers=8) < 2
