"""Fidelity: what a queue delivered against what it should have, over the time it had enough to send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.fidelity import Fidelity, fidelity, worst_of

TICK_S = 1 / 128  # a power of two, so that every product below is exact
TICK_BYTES = 1000
RATE_BPS = TICK_BYTES * 8 / TICK_S
PLENTY = 100 * TICK_BYTES
SECOND = 128  # ticks


def queue(served_bytes, backlog_bytes=PLENTY, rate_bps=RATE_BPS, start_s=5.0):
    """Sample a queue every tick; `served_bytes` is what each tick delivered."""
    count = len(served_bytes) + 1
    return (
        start_s + TICK_S * np.arange(count),
        np.concatenate([[0.0], np.cumsum(np.asarray(served_bytes, float))]),
        np.broadcast_to(np.asarray(backlog_bytes, float), count),
        np.broadcast_to(np.asarray(rate_bps, float), count),
    )


def test_a_queue_that_was_never_backlogged_has_no_fidelity_rather_than_a_perfect_one():
    found = fidelity(*queue([TICK_BYTES] * SECOND, backlog_bytes=0))
    assert (found.value, found.coverage, found.worst_second) == (None, 0.0, None)
    assert found.to_json() == {"value": None, "coverage": 0.0, "worst_second": None}


@pytest.mark.parametrize("samples", [0, 1])
def test_too_few_samples_say_nothing(samples):
    assert fidelity(*(column[:samples] for column in queue([TICK_BYTES]))).value is None
    assert worst_of([]).value is None


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0, 1.25])
def test_fidelity_is_the_share_of_the_rate_that_was_delivered(share):
    found = fidelity(*queue([share * TICK_BYTES] * SECOND))
    assert (found.value, found.coverage, found.worst_second) == (share, 1.0, share)


@pytest.mark.parametrize(("ticks", "value"), [(12, None), (13, 0.5)])
def test_less_than_a_tenth_of_a_second_of_backlog_is_too_little_to_judge_by(ticks, value):
    found = fidelity(*queue([TICK_BYTES / 2] * 2 * ticks, backlog_bytes=[PLENTY] * ticks + [0] * (ticks + 1)))
    assert (found.value, found.coverage, found.worst_second) == (value, 0.5, None)


def test_an_interval_counts_if_the_backlog_at_its_start_just_fills_it_and_not_if_it_is_a_byte_short():
    served, backlog = [TICK_BYTES] * 20 + [TICK_BYTES / 2] * 20, [TICK_BYTES] * 20 + [TICK_BYTES - 1] * 20
    found = fidelity(*queue(served * 2, backlog_bytes=backlog * 2 + [PLENTY]))
    assert (found.value, found.coverage) == (1.0, 0.5)


@pytest.mark.parametrize(("ticks", "coverage"), [(1, 0.0), (2, 0.0), (3, 0.75)])
def test_a_burst_that_is_soon_over_counts_for_nothing_even_if_it_comes_often(ticks, coverage):
    served = ([7 * TICK_BYTES] * ticks + [0]) * 60
    found = fidelity(*queue(served, backlog_bytes=([7 * PLENTY] * ticks + [0]) * 60 + [0], rate_bps=7 * RATE_BPS))
    assert found.value == (1.0 if coverage else None)
    assert found.coverage == coverage


@pytest.mark.parametrize(("ticks", "coverage"), [(11, 0.0), (12, 12 / 13)])
def test_a_run_of_a_few_frames_at_a_low_rate_counts_for_nothing(ticks, coverage):
    found = fidelity(*queue(([TICK_BYTES] * ticks + [0]) * 20, backlog_bytes=([PLENTY] * ticks + [0]) * 20 + [0]))
    assert found.coverage == pytest.approx(coverage)


def small_queue(speed: float) -> tuple[np.ndarray, ...]:
    """Serve bursts of frames from a token bucket of one frame at 10 Mbit/s, a queue of ten frames, and sample it every 4 ms."""
    random, frame, rate_bps = np.random.default_rng(1), 1514, 10e6
    gap_s, moments, backlogs, free_s, now_s = frame * 8 / rate_bps / speed, [], [], 0.0, 0.0
    while now_s < 60:
        for arrival_s in now_s + np.arange(random.geometric(1 / 15)) * gap_s / 10:
            if sum(leaves_s > arrival_s for leaves_s in moments[-10:]) < 10:
                free_s = max(free_s + gap_s, arrival_s - gap_s)  # a full bucket lets two frames through at once
                moments.append(max(free_s, arrival_s))
                backlogs.append(arrival_s)
        now_s += random.uniform(0.5, 1.5) * 15 * gap_s / 0.8
    time_s = np.arange(0.0, 60, 0.004) + random.uniform(0, 2e-4, 15_000)
    sent = np.searchsorted(np.sort(moments), time_s, side="right") * float(frame)
    arrived = np.searchsorted(np.sort(backlogs), time_s, side="right") * float(frame)
    return time_s, sent, arrived - sent, np.full(15_000, rate_bps)


@pytest.mark.parametrize("speed", [1.0, 0.97])
def test_bursts_into_a_small_queue_do_not_flatter_it(speed):
    found = fidelity(*small_queue(speed))
    assert found.value == pytest.approx(speed, abs=0.004)
    assert found.coverage > 0.05


def test_intervals_next_to_a_change_of_rate_count_for_neither_rate():
    rates = [RATE_BPS] * 41 + [2 * RATE_BPS] * 43  # on record; in force 2 ticks before
    found = fidelity(*queue([TICK_BYTES] * 38 + [2 * TICK_BYTES] * 2 + [1] + [2 * TICK_BYTES] * 42, rate_bps=rates))
    assert found.value == 1.0
    assert found.coverage == pytest.approx((83 - 6) / 83)  # three on either side of the first sample of the new rate


def test_a_rate_that_always_changes_is_not_judged():
    rates = [RATE_BPS * (1 + i % 2) for i in range(64)]
    assert fidelity(*queue([TICK_BYTES] * 63, rate_bps=rates)).value is None


def test_two_samples_of_the_same_moment_are_no_interval():
    time_s, sent, backlog, rate = queue([TICK_BYTES] * 30)
    time_s = np.insert(time_s, 15, time_s[15])
    sent = np.insert(sent, 15, sent[15] - 7)  # what came between them would have come in no time
    sent[:15] -= 7
    found = fidelity(time_s, sent, np.append(backlog, PLENTY), np.append(rate, RATE_BPS))
    assert (found.value, found.coverage) == (1.0, 1.0)


def test_the_worst_second_is_the_lowest_of_the_seconds():
    found = fidelity(*queue([TICK_BYTES] * SECOND + [TICK_BYTES / 2] * SECOND + [TICK_BYTES] * SECOND))
    assert found.value == pytest.approx(2.5 / 3)
    assert found.worst_second == 0.5


@pytest.mark.parametrize(("ticks", "worst"), [(25, 1.0), (26, 0.0)])
def test_a_second_with_less_than_a_fifth_of_backlogged_time_is_not_the_worst(ticks, worst):
    found = fidelity(*queue([TICK_BYTES] * SECOND + [0] * ticks))
    assert found.worst_second == worst
    assert found.value == pytest.approx(SECOND / (SECOND + ticks))


def test_a_run_of_less_than_a_fifth_of_a_second_has_a_value_but_no_worst_second():
    found = fidelity(*queue([TICK_BYTES] * 20))
    assert (found.value, found.worst_second) == (1.0, None)


def test_several_queues_are_judged_by_the_worst():
    fast = queue([3 * TICK_BYTES] * SECOND, rate_bps=3 * RATE_BPS)
    half = queue([TICK_BYTES / 2] * SECOND)
    found = worst_of([fidelity(*fast), fidelity(*half)])
    assert found.value == 0.5  # the good one does not hide it
    assert found.coverage == 1.0
    assert found.worst_second == 0.5


@pytest.mark.parametrize(
    ("values", "worst"),
    [
        ((0.975, 1.03), 0.975),
        ((0.99, 1.03), 0.99),
        ((0.99, 1.06), 1.06),
        ((0.975, 1.06), 0.975),
        ((1.01, 1.02), 1.01),
        ((None, 1.06), 1.06),
    ],
)
def test_the_worst_is_the_lowest_or_one_too_high_to_be_true(values, worst):
    assert worst_of([Fidelity(value, 0.5, value) for value in values]).value == worst


def test_an_idle_queue_lowers_the_coverage_and_nothing_else():
    found = worst_of([fidelity(*queue([TICK_BYTES] * SECOND)), fidelity(*queue([0] * SECOND, backlog_bytes=0))])
    assert (found.value, found.coverage, found.worst_second) == (1.0, 0.5, 1.0)


@given(st.lists(st.integers(0, 3 * TICK_BYTES), min_size=13, max_size=200), st.data())
def test_a_queue_that_is_always_backlogged_has_the_same_fidelity_however_it_is_sampled(served, data):
    samples = queue(served, backlog_bytes=1e12)
    kept = data.draw(st.sets(st.integers(1, len(served) - 1)), label="samples kept")
    coarser = tuple(column[[0, *sorted(kept), len(served)]] for column in samples)
    assert fidelity(*coarser).value == pytest.approx(fidelity(*samples).value)
    assert fidelity(*coarser).coverage == pytest.approx(1.0)


def bursts(count: int, served: float, scatter_frames: int) -> tuple[np.ndarray, ...]:
    """Sample every 5 ms a queue of 10 Mbit/s that is backlogged for 20 ms at a time; frames at the ends come or do not come."""
    frame, interval_s, rate_bps = 1514, 0.005, 10e6
    per_interval = rate_bps * interval_s / 8
    times, sent, backlog, total = [], [], [], 0.0
    for burst in range(count):
        for interval in range(8):
            times.append(len(times) * interval_s)
            sent.append(total)
            backlogged = interval < 4
            backlog.append(2 * per_interval if backlogged else 0.0)
            total += served * per_interval if backlogged else 0.0
            if interval == 3:
                total += scatter_frames * frame * (1 if burst % 2 else -1)
    return np.array(times), np.array(sent), np.array(backlog), np.full(len(times), rate_bps)


def test_short_runs_that_scatter_too_much_claim_nothing():
    assert fidelity(*bursts(8, 1.0, 2)).value is None
    assert fidelity(*bursts(800, 1.0, 2)).value == pytest.approx(1.0, abs=0.005)  # many of them tell enough
    assert fidelity(*bursts(8, 1.0, 0)).value == pytest.approx(1.0)  # and so do few that agree


def test_what_is_bad_beyond_doubt_is_told_however_much_it_scatters():
    told = fidelity(*bursts(20, 0.7, 1)).value
    assert told == pytest.approx(0.7, abs=0.02)


def through_a_bucket(rate_bps: float, bucket_bytes: int, sizes: list[int], every_s: float, count: int, dt_s: float) -> tuple:
    """Simulate bursts of frames through a token bucket, looked at every `dt_s`: columns as `fidelity` takes them, all five."""
    departures: list[tuple[float, int]] = []
    for burst in range(count):
        at_s = paid_at_s = burst * every_s
        credit = bucket_bytes
        for size in sizes:
            if credit < 0:  # wait until the last frame is paid for
                at_s = paid_at_s + -credit * 8 / rate_bps
                paid_at_s, credit = at_s, 0
            departures.append((at_s, size))
            credit -= size
    leaving_s, left = np.array([d[0] for d in departures]), np.array([d[1] for d in departures])
    ticks_s = np.arange(-dt_s, count * every_s, dt_s)
    gone = np.searchsorted(leaving_s, ticks_s, side="right")
    come = np.clip(np.floor(ticks_s / every_s) + 1, 0, count).astype(int) * len(sizes)
    sent, offered = (np.concatenate(([0], np.cumsum(left)))[index].astype(float) for index in (gone, np.maximum(come, gone)))
    return ticks_s, sent, offered - sent, np.full(len(ticks_s), rate_bps), gone.astype(float)


@pytest.mark.parametrize("tail", [[], [66] * 12, [800]])
def test_frames_that_leave_ahead_of_their_tokens_do_not_make_short_bursts_look_slow(tail):
    samples = through_a_bucket(5e6, 1562, [1514] * 15 + tail, every_s=0.100_037, count=100, dt_s=0.00167)
    assert fidelity(*samples).value == pytest.approx(1.0, abs=0.01)
    slow = through_a_bucket(5e6 * 0.95, 1562, [1514] * 15 + tail, every_s=0.100_037, count=100, dt_s=0.00167)
    slow = (*slow[:3], np.full(len(slow[0]), 5e6), slow[4])  # served at 95 % of what was asked for
    assert fidelity(*slow).value == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize(
    ("sizes", "speed", "slow"), [([6] + [2] * 8, 1.0, False), ([6] + [1] * 14, 1.0, False), ([6] + [1] * 14, 0.95, True)]
)
def test_several_frames_that_leave_at_once_make_no_slow_queue_and_a_slow_one_stays_slow(sizes, speed, slow):
    together = [frames * 1514 for frames in sizes]  # as TCP hands them over
    time_s, sent, backlog, _, _ = through_a_bucket(1.5e6 * speed, 1514, together, every_s=0.400_037, count=80, dt_s=0.005)
    found = fidelity(time_s, sent, backlog, np.full(len(time_s), 1.5e6), np.round(sent / 1514))
    assert (found.value < 0.98) == slow
    assert slow or found.value == pytest.approx(1.0, abs=0.01)
