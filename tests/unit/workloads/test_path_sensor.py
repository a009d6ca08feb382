"""What a worker reads off the board: a dumbbell of four workers, whose hops 1 -> 2 and 3 -> 0 cross the bottleneck."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from controller.board import Board, QueueInfo, QueueReading
from workloads.sensing.telemetry import LEAST_SHARE, UNKNOWN, WIRE_FACTOR, PathReading, PathSensor

UPLINK, FORWARD, BACKWARD, DOWNLINK, SPARE = range(5)
RATES_BPS = (100e6, 40e6, 40e6, 100e6, 30e6)


def info(name: str, delay_s: float) -> QueueInfo:
    return QueueInfo(name, name, "a", "b", "", 100_000, delay_s, name == "forward")


class Bench:
    """A board, a sensor of hop 1 and a clock that both share."""

    def __init__(self, path: Path, hop: int = 1, dilation: float = 1.0) -> None:
        delays_s = {"uplink": 0.0, "forward": 0.005, "backward": 0.005, "downlink": 0.001, "spare": 0.020}
        infos = [info(name, dilation * delay_s) for name, delay_s in delays_s.items()]
        self.board = Board.create(path, infos, [rate_bps / dilation for rate_bps in RATES_BPS])
        self.dilation = dilation
        for queue, mask in ((UPLINK, 0b0010), (FORWARD, 0b0010), (BACKWARD, 0b1000), (DOWNLINK, 0b0010)):
            self.board.set_hops(queue, mask)
        self.now_s = 100.0
        self.sent = [0] * len(infos)
        self.sensor = PathSensor(str(path), hop, dilation, clock=lambda: self.now_s)

    def sample(self, queue: int, sent_bytes: float = 0, backlog_bytes: int = 0, mono_s: float | None = None) -> None:
        self.sent[queue] += round(sent_bytes)
        mono_s = self.now_s if mono_s is None else mono_s
        self.board.write_queue(queue, QueueReading(mono_s, self.sent[queue], 0, backlog_bytes, 0, 0, 0, 0.0, 0.0))

    def step(self, own_bytes: int = 0, background_bytes: int = 0, seconds: float = 0.1, crossings: int = 1) -> PathReading:
        """Let a step pass and the queues be sampled at its end."""
        self.now_s += seconds * self.dilation
        for queue in (UPLINK, DOWNLINK, BACKWARD, SPARE):
            self.sample(queue, own_bytes * WIRE_FACTOR)
        self.sample(FORWARD, crossings * own_bytes * WIRE_FACTOR + background_bytes)
        return self.sensor.read(own_bytes)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "board.bin")


def test_a_path_of_our_own_is_all_available(bench: Bench) -> None:
    for _ in range(10):
        reading = bench.step(own_bytes=100_000)
        assert reading.available_bps == pytest.approx(40e6, rel=1e-5)
    assert (reading.backlog_bytes, reading.age_s) == (0.0, 0.0)
    assert reading.base_rtt_s == pytest.approx(2 * 0.006)


def test_what_others_send_is_taken_off(bench: Bench) -> None:
    for _ in range(10):
        reading = bench.step(own_bytes=100_000, background_bytes=125_000)  # 10 Mbit/s
    assert reading.available_bps == pytest.approx(30e6, rel=1e-5)


def test_the_window_forgets_what_is_half_a_second_ago(bench: Bench) -> None:
    for _ in range(10):
        bench.step(seconds=0.125, background_bytes=250_000)
    assert [bench.step(seconds=0.125).available_bps for _ in range(5)] == pytest.approx([28e6, 32e6, 36e6, 40e6, 40e6])
    assert bench.step(seconds=2.0, background_bytes=5_000_000).available_bps == pytest.approx(20e6)  # a long step counts alone


def test_every_hop_that_crosses_the_queue_is_our_own(bench: Bench) -> None:
    bench.board.set_hops(FORWARD, 0b0111)
    for _ in range(10):
        reading = bench.step(own_bytes=50_000, crossings=3)
    assert reading.available_bps == pytest.approx(40e6, rel=1e-5)


def test_a_full_link_still_yields_its_least_share_and_never_more_than_its_rate(bench: Bench) -> None:
    bench.step()
    assert bench.step(background_bytes=500_000).available_bps == LEAST_SHARE * 40e6
    bench.step(seconds=1.0)
    bench.sensor.read(10_000_000)
    assert bench.step(seconds=1.0).available_bps == 40e6  # it sent less than we believe


def test_the_tightest_queue_counts_with_its_backlog(bench: Bench) -> None:
    bench.step()
    bench.step()
    bench.sample(FORWARD, backlog_bytes=7_000)
    bench.sample(UPLINK, backlog_bytes=90_000)
    assert bench.sensor.read(0) == PathReading(40e6, 7_000.0, pytest.approx(0.012), 0.0)
    bench.board.set_configured(UPLINK, 5e6)
    assert bench.sensor.read(0) == PathReading(5e6, 90_000.0, pytest.approx(0.012), 0.0)


def test_of_the_backlog_our_own_share_is_left_out(bench: Bench) -> None:
    bench.step()
    for background_bytes, share in ((0, 0.0), (100_000, 0.5)):
        bench.step(own_bytes=round(100_000 / WIRE_FACTOR), background_bytes=background_bytes, seconds=1.0)
        bench.sample(FORWARD, backlog_bytes=8_000)
        assert bench.sensor.read(0).backlog_bytes == pytest.approx(share * 8_000, abs=1)


def test_the_configured_rate_is_followed_at_once(bench: Bench) -> None:
    bench.step(own_bytes=100_000)
    bench.board.set_configured(FORWARD, 10e6)
    assert bench.step(own_bytes=100_000).available_bps == pytest.approx(10e6, rel=1e-4)


def test_the_oldest_counters_of_the_path_make_its_age(bench: Bench) -> None:
    bench.step()
    bench.now_s += 0.3
    bench.sample(FORWARD)
    bench.sample(UPLINK, mono_s=bench.now_s - 0.05)
    assert bench.sensor.read(0).age_s == pytest.approx(0.3)  # the downlink's


def test_a_slower_network_is_told_in_the_experiments_time(tmp_path: Path) -> None:
    plain, slow = Bench(tmp_path / "plain.bin"), Bench(tmp_path / "slow.bin", dilation=5.0)
    for seconds, background_bytes in [(0.1, 0), (0.3, 400_000), (0.2, 250_000), (0.4, 0), (0.3, 90_000)]:
        readings = []
        for bench in (plain, slow):
            bench.sample(FORWARD, backlog_bytes=7000)
            bench.now_s += 0.02 * bench.dilation
            readings.append(bench.step(10_000, background_bytes, seconds))
        expected, told = readings
        assert told.available_bps == pytest.approx(expected.available_bps)
        assert told.backlog_bytes == pytest.approx(expected.backlog_bytes)
        assert told.base_rtt_s == pytest.approx(expected.base_rtt_s)
    plain.now_s, slow.now_s = plain.now_s + 0.1, slow.now_s + 0.5
    assert plain.sensor.read(0).age_s == pytest.approx(0.1)
    assert slow.sensor.read(0).age_s == pytest.approx(0.1)


def test_counters_not_read_again_since_keep_the_estimate(bench: Bench) -> None:
    for _ in range(10):
        before = bench.step(own_bytes=100_000, background_bytes=125_000)
    bench.now_s += 0.1
    after = bench.sensor.read(100_000)
    assert (after.available_bps, after.age_s) == (before.available_bps, pytest.approx(0.1))
    bench.sample(FORWARD, 2 * 125_000 + 2 * 100_000 * WIRE_FACTOR)  # catches up
    bench.now_s += 0.1
    assert bench.sensor.read(100_000).available_bps == pytest.approx(30e6, rel=0.15)


def test_counters_that_begin_anew_are_no_traffic(bench: Bench) -> None:
    bench.step(background_bytes=125_000)
    bench.step(background_bytes=125_000)
    bench.sent[FORWARD] = 0
    assert bench.step().available_bps == pytest.approx(30e6)  # what was known before
    assert bench.step().available_bps == 40e6


def test_a_new_path_is_followed(bench: Bench) -> None:
    bench.step()
    bench.board.set_hops(FORWARD, 0)
    bench.board.set_hops(SPARE, 0b0010)
    reading = bench.step()
    assert (reading.available_bps, reading.base_rtt_s) == (30e6, pytest.approx(2 * 0.021))
    bench.board.set_hops(FORWARD, 0b0010)  # one more queue: noticed when the sensor looks for it
    assert bench.step(seconds=1.1).base_rtt_s == pytest.approx(2 * 0.026)


def test_a_queue_that_was_never_read_leaves_the_path_unknown(bench: Bench) -> None:
    for queue in (UPLINK, FORWARD):
        bench.sample(queue)
    assert bench.sensor.read(1000) == UNKNOWN
    bench.sample(DOWNLINK)
    assert bench.sensor.read(1000).age_s == 0.0


@pytest.mark.parametrize("hop", [2, 255, 256, 10_000])
def test_a_hop_that_crosses_no_queue_is_unknown(tmp_path: Path, hop: int) -> None:
    assert Bench(tmp_path / "board.bin", hop).step(1000) == UNKNOWN
    assert UNKNOWN.age_s == math.inf


def test_a_board_that_is_missing_or_garbled_is_no_reason_to_fail_and_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "board.bin"
    sensor = PathSensor(str(path), 1)
    assert sensor.read(1000) == UNKNOWN
    for garbage in (b"", b"garbage" * 100):
        path.write_bytes(garbage)
        assert sensor.read(1000) == UNKNOWN
    path.unlink()
    path.mkdir()
    assert sensor.read(1000) == UNKNOWN
    path.rmdir()
    bench = Bench(path)
    bench.step()
    assert sensor.read(1000).available_bps == 40e6
    sensor.close()
    sensor.close()
    assert sensor.read(1000).available_bps == 40e6  # opened again


def test_a_read_is_quick(bench: Bench) -> None:
    bench.step()
    seconds = []
    for _ in range(200):
        bench.sample(FORWARD)
        began = time.perf_counter()
        bench.sensor.read(1000)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 2e-4  # about 30 us on an idle machine


@pytest.mark.parametrize(("others_bps", "available_bps"), [(0.0, 6e6), (3e6, 6e6), (5e6, 5e6), (9.9e6, LEAST_SHARE * 6e6)])
def test_other_classes_of_the_link_leave_what_they_do_not_take(tmp_path: Path, others_bps: float, available_bps: float) -> None:
    names = ("training", "background")
    infos = [QueueInfo(f"shared/{name}", "shared", "s1", "s2", name, 100_000, 0.0, True) for name in names]
    board = Board.create(tmp_path / "board.bin", infos, [6e6, 10e6])
    board.set_hops(0, 0b1)
    board.write_queue(0, QueueReading(100.0, 0, 0, 0, 0, 0, 0, 0.0, 0.0))
    board.write_queue(1, QueueReading(100.0, 0, 0, 0, 0, 0, 0, others_bps, 0.0))
    sensor = PathSensor(str(tmp_path / "board.bin"), 0, clock=lambda: 100.0)
    assert sensor.read(0).available_bps == pytest.approx(available_bps)
