"""What telemetry says of the queues is true: against iperf3, against a known burst, class by class."""

import pytest

from tests.emulation.scenarios import play
from tests.measuring import measured

pytestmark = [pytest.mark.usefixtures("emulation"), measured]


def test_queue_statistics_agree_with_iperf3():
    seen = play("counted_beside_iperf3", room="telemetered", rate_bps=20e6, seconds=4)
    for counter in ("netlink_bytes", "openflow_queue_bytes", "openflow_port_bytes"):
        assert seen[counter] == pytest.approx(seen["wanted_bytes"], rel=0.02), counter
    assert seen["openflow_readings"] >= 5
    assert seen["samples"] > 0.9 * seen["seconds"] / 0.005


def test_the_backlog_rises_and_falls_with_a_known_burst():
    rate_bps, access_bps, burst_bytes = 10e6, 40e6, 150_000
    seen = play("burst", room="telemetered", rate_bps=rate_bps, access_bps=access_bps, burst_bytes=burst_bytes)
    assert seen["dropped"] == 0
    # arrives at the access rate while it leaves at the link's
    peak_at_s, peak_bytes = max(((at, held) for at, held, _ in seen["trace"]), key=lambda sample: sample[1])
    assert peak_bytes == pytest.approx(burst_bytes * (1 - rate_bps / access_bps), rel=0.1)  # looked at every 5 ms, of 30 that it takes
    assert peak_at_s == pytest.approx(burst_bytes * 8 / access_bps, abs=0.015)
    falling = [(at, held) for at, held, _ in seen["trace"] if at > peak_at_s and held > 10_000]
    (first_s, first), (last_s, last) = falling[0], falling[-1]
    assert (first - last) * 8 / (last_s - first_s) == pytest.approx(rate_bps, rel=0.03)
    assert seen["trace"][-1][1] == 0
    assert seen["trace"][-1][2] - seen["trace"][0][2] == seen["sent_bytes"]


def test_classes_get_what_they_were_promised():
    seen = play("classes", room="telemetered", rate_bps=10e6, seconds=3)
    assert seen["verified"]["bottleneck:s1->s2/training"] == pytest.approx(10e6, rel=0.015)
    assert seen["verified"]["bottleneck:s1->s2/background"] == pytest.approx(5e6, rel=0.015)
    assert sum(seen["together_bps"].values()) == pytest.approx(10e6, rel=0.03)
    assert 1e6 * 0.97 <= seen["together_bps"]["background"] <= 3e6 * 1.03
    assert seen["together_bps"]["training"] >= 7e6 * 0.97
    assert seen["alone_bps"]["background"] == pytest.approx(5e6, rel=0.03)  # its most, the rest left idle
    for kind in ("training", "background"):
        assert seen["openflow_bytes"][kind] == pytest.approx(seen["netlink_bytes"][kind], rel=0.02)
