"""NetSense with telemetry on a synthetic network: ResNet-8's size, 4 workers, two rounds of 10 ms."""

import itertools
import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workloads.synthetic import Network, Step, Tell, drive
from workloads.policies.assisted import AssistedConstants, AssistedNetSense
from workloads.policies.netsense import PAPER, PROTOTYPE, NetSense
from workloads.policies.policy import SENSING, TELEMETRY, Sample

RTT_S = 0.010
NETWORK = Network(78_000, workers=4, bandwidth_bps=40e6, fixed_s=2 * RTT_S, half_below=0.1, rounds=2.0)


def controller(rtt_s: float = RTT_S, **more: float) -> Tell:
    return lambda step, bandwidth_bps: {
        "available_bps": bandwidth_bps,
        "backlog_bytes": 0.0,
        "base_rtt_s": rtt_s,
        "telemetry_age_s": 0.02,
        **more,
    }


def told(**changes: float) -> Sample:
    """Return a sample of an exchange that sent 10 kB at ratio 0.01 (so 1 MB a unit in FP16), on a path of 8 Mbit/s and 2 x 5 ms."""
    path = {"available_bps": 8e6, "backlog_bytes": 0.0, "base_rtt_s": 0.005, "rounds": 2.0, "telemetry_age_s": 0.1}
    step = {"now_s": 1.0, "ratio": 0.01, "dense_bytes": 1_000_000, "bytes_sent": 10_000, "exchange_s": 0.1}
    return Sample(step=1, **(step | path | changes))  # type: ignore[arg-type]


def ratio_on(network: Network, bandwidth_bps: float, rtt_s: float = RTT_S) -> float:
    """Return the ratio below 0.1 that fills nine tenths of the bandwidth-delay product."""
    payload = 0.9 * bandwidth_bps / 8 * network.rounds * rtt_s
    return payload / ((network.workers - 1) * network.parameters * 6)


def steps_to_settle(trace: list[Step], since: int) -> int:
    """Return how many steps after the change in step `since` the ratio is, for good, within 10 % of the range it ends up in."""
    ratios = [step.ratio for step in trace]
    low, high = 0.9 * min(ratios[-100:]), 1.1 * max(ratios[-100:])
    outside = [i for i, ratio in enumerate(ratios) if not low <= ratio <= high]
    return max(outside[-1] + 1 - since, 0)


def test_the_payload_is_the_guard_times_what_is_told() -> None:
    decision = AssistedNetSense().decide(told())
    assert decision.ratio == pytest.approx(0.9 * 1e6 * 2 * 0.005 / 1e6)
    assert (decision.btlbw_bps, decision.rtprop_s, decision.bdp_bytes) == (8e6, 0.010, 10_000)
    assert decision.congested is True  # 10 kB > 9 kB
    assert decision.source == TELEMETRY
    assert AssistedNetSense().decide(told(bytes_sent=8_999)).congested is False


def test_what_waits_in_the_queue_is_taken_off_down_to_the_floor() -> None:
    assert AssistedNetSense().decide(told(backlog_bytes=3_000)).ratio == pytest.approx(0.9 * 0.007)
    assert AssistedNetSense().decide(told(backlog_bytes=1e9)).ratio == PAPER.floor


def test_a_path_without_delay_counts_as_one_of_a_millisecond() -> None:
    decision = AssistedNetSense().decide(told(base_rtt_s=0.0, available_bps=80e6))
    assert decision.rtprop_s == 0.002
    assert decision.ratio == pytest.approx(0.9 * 0.02)


def test_before_the_first_step_it_is_the_initial_ratio_whatever_is_told() -> None:
    policy = AssistedNetSense()
    assert policy.decide(Sample(step=0)).ratio == PAPER.initial
    assert policy.decide(replace(told(), bytes_sent=0)).ratio == PAPER.initial
    decided = policy.decide(told())
    assert policy.decide(replace(told(), bytes_sent=0, available_bps=1e3)) == decided


def test_a_step_of_the_bottleneck_is_followed_in_one_step_where_netsense_takes_many() -> None:
    network = replace(NETWORK, changes={100: 10e6})
    assisted = drive(AssistedNetSense(), network, 500, controller())
    before, after = ratio_on(network, 40e6), ratio_on(network, 10e6)
    assert all(step.ratio == pytest.approx(before, rel=0.01) for step in assisted[1:101])
    assert all(step.ratio == pytest.approx(after, rel=0.01) for step in assisted[101:])
    assert steps_to_settle(assisted, since=100) == 1
    assert steps_to_settle(drive(NetSense(PAPER), network, 500), since=100) > 50  # the bandwidth of before stays in its window for 10 s


@pytest.mark.parametrize("bandwidth_bps", [2e6, 10e6, 40e6, 160e6])
def test_the_first_step_is_the_only_one_off(bandwidth_bps: float) -> None:
    network = replace(NETWORK, bandwidth_bps=bandwidth_bps)
    trace = drive(AssistedNetSense(), network, 20, controller())
    assert all(step.size == pytest.approx(trace[-1].size, rel=0.01) for step in trace[1:])


def test_noise_of_the_exchange_does_not_reach_the_ratio_and_that_of_telemetry_is_not_amplified() -> None:
    noisy = drive(AssistedNetSense(), replace(NETWORK, noise=0.3), 100, controller())
    assert max(step.ratio for step in noisy[2:]) == pytest.approx(min(step.ratio for step in noisy[2:]), rel=0.001)

    def jittery(step: int, bandwidth_bps: float) -> dict[str, float]:
        return controller()(step, bandwidth_bps * (1.05 if step % 2 else 0.95))

    trace = drive(AssistedNetSense(), NETWORK, 100, jittery)
    middle = ratio_on(NETWORK, 40e6)
    assert all(0.94 * middle < step.ratio < 1.06 * middle for step in trace[1:])


def test_stale_telemetry_hands_over_to_netsense_without_a_jump_and_back_in_one_step() -> None:
    def until_it_stops(step: int, bandwidth_bps: float) -> dict[str, float]:
        return controller(telemetry_age_s=1.4 if 40 <= step < 80 else 0.02)(step, bandwidth_bps)

    trace = drive(AssistedNetSense(), NETWORK, 120, until_it_stops)
    assert trace[0].decision.source is None
    assert {step.decision.source for step in trace[1:41]} == {TELEMETRY}
    assert {step.decision.source for step in trace[41:81]} == {SENSING}
    assert {step.decision.source for step in trace[81:]} == {TELEMETRY}
    for before, after in itertools.pairwise(step.ratio for step in trace[40:81]):
        halved, grown = max(PAPER.decrease * before, PAPER.floor), before + PAPER.increase
        assert after == pytest.approx(halved) or after == pytest.approx(grown)  # never the start-up's 0.05
    assert trace[41].decision.btlbw_bps is not None  # warm: it has sensed all the while
    assert trace[81].ratio == pytest.approx(trace[40].ratio, rel=0.01)


@pytest.mark.parametrize("constants", [PAPER, PROTOTYPE])
def test_without_telemetry_it_is_netsense(constants: object) -> None:
    network = replace(NETWORK, noise=0.2, changes={60: 5e6})
    alone = drive(NetSense(constants), network, 150)  # type: ignore[arg-type]
    assisted = drive(AssistedNetSense(AssistedConstants(constants)), network, 150)  # type: ignore[arg-type]
    assert [replace(step.decision, source=None) for step in assisted] == [step.decision for step in alone]
    assert {step.decision.source for step in assisted[1:]} == {SENSING}


def test_how_old_telemetry_may_be_is_a_parameter() -> None:
    assert AssistedNetSense().decide(told(telemetry_age_s=1.0)).source == TELEMETRY
    assert AssistedNetSense().decide(told(telemetry_age_s=1.01)).source == SENSING
    patient = AssistedNetSense(AssistedConstants(max_age_s=3.0))
    assert patient.decide(told(telemetry_age_s=2.9)).source == TELEMETRY


def test_nowhere_does_it_go_to_and_fro() -> None:
    # from the floor over the change of FP16 to FP32 (no ratio has payloads of 140 to 187 kB) to dense
    assert NETWORK.bytes_at(0.0999) < 141e3 and NETWORK.bytes_at(0.1) > 187e3
    for megabits in range(1, 1000, 3):
        network = replace(NETWORK, bandwidth_bps=megabits * 1e6)
        trace = drive(AssistedNetSense(), network, 8, controller())
        limit = 0.9 * megabits * 1e6 / 8 * network.fixed_s
        assert all(step.size == pytest.approx(trace[4].size, rel=0.01) for step in trace[4:])
        assert trace[-1].size <= max(limit * 1.01, network.bytes_at(PAPER.floor))
        assert trace[-1].size >= 0.74 * min(limit, network.dense_bytes)  # 140 of 187 kB at worst


def test_going_dense_does_not_depend_on_having_gone_dense() -> None:
    # a dense exchange takes 6 rounds, so by its own product it would fit where a sparse one's does not
    sparse_bps = 8 * NETWORK.dense_bytes / 0.9 / NETWORK.fixed_s * 0.8
    dense_bps = 1.5 * sparse_bps
    network = replace(NETWORK, bandwidth_bps=sparse_bps, changes={20: dense_bps, 40: sparse_bps})
    trace = drive(AssistedNetSense(), network, 60, controller())
    sizes = [step.size for step in trace]
    assert set(sizes[22:41]) == {network.dense_bytes}
    assert sizes[19] == sizes[42] == sizes[59] == pytest.approx(0.8 * network.dense_bytes, rel=0.01)


def test_a_dense_start_is_left() -> None:
    trace = drive(AssistedNetSense(AssistedConstants(PROTOTYPE)), NETWORK, 10, controller())
    assert trace[0].size == NETWORK.dense_bytes
    assert trace[3].ratio == pytest.approx(ratio_on(NETWORK, 40e6), rel=0.01)


def test_competing_traffic_is_made_room_for() -> None:
    # half of the time others take three quarters of the link and fill a queue of one product
    changes = {step: 10e6 if step % 80 == 40 else 40e6 for step in range(40, 400, 40)}
    network = replace(NETWORK, changes=changes)

    def crowded(step: int, bandwidth_bps: float) -> dict[str, float]:
        return controller(backlog_bytes=10e6 / 8 * RTT_S if bandwidth_bps < 40e6 else 0.0)(step, bandwidth_bps)

    assisted, alone = drive(AssistedNetSense(), network, 400, crowded), drive(NetSense(PAPER), network, 400)
    crowded_s = [statistics.mean(step.exchange_s for step in trace[41:80]) for trace in (assisted, alone)]
    assert crowded_s[0] < 0.7 * crowded_s[1]
    # over both halves it sends more in less time
    assert sum(step.exchange_s for step in assisted) < 0.95 * sum(step.exchange_s for step in alone)
    assert sum(step.size for step in assisted) > 1.3 * sum(step.size for step in alone)


def test_reset_starts_over() -> None:
    policy = AssistedNetSense()
    first = drive(policy, NETWORK, 30, controller())
    assert drive(policy, replace(NETWORK, workers=8), 30, controller()) != first
    policy.reset()
    assert drive(policy, NETWORK, 30, controller()) == first


numbers = st.none() | st.floats(0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Sample,
            step=st.integers(0, 10**6),
            now_s=st.floats(0, allow_infinity=False),
            ratio=st.floats(0, 1),
            dense_bytes=st.integers(0, 10**12),
            bytes_sent=st.integers(0, 10**13),
            exchange_s=st.floats(0),
            rounds=st.floats(0),
            available_bps=numbers,
            backlog_bytes=numbers,
            base_rtt_s=numbers,
            telemetry_age_s=st.floats(0, 2) | st.just(math.inf),
        ),
        max_size=30,
    )
)
def test_the_ratio_stays_within_its_limits_whatever_is_told(samples: list[Sample]) -> None:
    policy = AssistedNetSense()
    for sample in samples:
        ratio = policy.decide(sample).ratio
        assert math.isfinite(ratio) and PAPER.floor <= ratio <= PAPER.ceiling
