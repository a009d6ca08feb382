"""The delay line's arithmetic: when a frame is due, which are lost, and what is counted; no socket, no clock."""

from __future__ import annotations

import errno
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.delayline import Direction

FAR_FUTURE = 1e6


class Wire:
    """Takes frames as a socket does; refuses those it is told to."""

    def __init__(self, refused: tuple[bytes, ...] = ()) -> None:
        self.frames: list[bytes] = []
        self._refused = refused

    def send(self, frame: bytes) -> int:
        if frame in self._refused:
            raise OSError(errno.ENETDOWN, "Network is down")
        self.frames.append(frame)
        return len(frame)


def direction(delay_s=0.010, jitter_s=0.0, loss=0.0, seed=1, wire=None):
    return Direction("bottleneck:s1->s2", wire or Wire(), delay_s, jitter_s, loss, random.Random(seed))


def due_times(line):
    return [due for due, _ in line.held]


def test_without_jitter_a_frame_is_due_exactly_one_delay_after_its_arrival():
    line = direction(delay_s=0.010)
    for arrived in (5.0, 5.001, 5.5):
        line.take(b"frame", arrived)
    assert due_times(line) == [5.010, 5.001 + 0.010, 5.510]


def test_a_frame_is_sent_when_it_is_due_and_not_before():
    line = direction(delay_s=0.5)
    line.take(b"a", 1.0)
    line.take(b"b", 1.25)
    line.release(1.49)
    assert line.target.frames == []
    line.release(1.5)
    assert line.target.frames == [b"a"]
    assert line.stats()["held"] == 1


def test_jitter_is_redrawn_as_seldom_as_it_is_told():
    def draws(redraw_s):
        line = Direction("bottleneck:s1->s2", Wire(), 1.0, 0.5, 0.0, random.Random(1), redraw_s)
        held = set()
        for i in range(20):
            line.take(b"frame", i * 0.0625)
            held.add(line.hold_s)
        return len(held)

    assert (draws(0.0625), draws(0.25)) == (20, 5)


gaps = st.lists(st.floats(0, 0.2), min_size=1, max_size=60)
milliseconds = st.integers(0, 100).map(lambda ms: ms / 1e3)


@given(gaps, milliseconds, milliseconds, milliseconds, st.integers(0, 60), st.integers(0, 2**32))
def test_no_frame_overtakes_another_whatever_the_jitter_and_however_the_delay_changes(gaps, delay_s, jitter_s, later_s, change_at, seed):
    line = direction(delay_s, jitter_s, seed=seed)
    arrived = 10.0
    for number, gap in enumerate(gaps):
        arrived += gap
        if number == change_at:
            line.change({"delay_s": later_s})
        line.take(number.to_bytes(2, "big"), arrived)
    dues = due_times(line)
    assert dues == sorted(dues)
    line.release(FAR_FUTURE)
    assert line.target.frames == [number.to_bytes(2, "big") for number in range(len(gaps))]


def test_jitter_is_redrawn_every_50_ms_and_not_for_each_frame():
    line = direction(delay_s=0.020, jitter_s=0.010)
    holds = []
    for arrived in [100 + ms / 1e3 for ms in range(50)] + [100 + 0.050, 100 + 0.099]:
        line.take(b"frame", arrived)
        holds.append(line.hold_s)
    assert len(set(holds[:50])) == 1
    assert holds[50] == holds[51] != holds[0]


def test_jitter_spreads_the_delay_evenly_around_its_mean():
    line = direction(delay_s=0.010, jitter_s=0.005)
    held_s = []
    for number in range(2000):
        arrived = number * 0.060
        line.take(b"frame", arrived)
        held_s.append(line.held[-1][0] - arrived)
    assert statistics.mean(held_s) == pytest.approx(0.010, abs=0.2e-3)
    assert statistics.pstdev(held_s) == pytest.approx(0.005 / 3**0.5, rel=0.05)
    assert min(held_s) >= 0.005 - 1e-9
    assert max(held_s) <= 0.015 + 1e-9


def test_jitter_beyond_the_delay_never_sends_a_frame_before_it_came():
    line = direction(delay_s=0.001, jitter_s=0.050)
    arrivals = [number * 0.060 for number in range(200)]
    for arrived in arrivals:
        line.take(b"frame", arrived)
    assert all(due >= arrived for due, arrived in zip(due_times(line), arrivals, strict=True))


def lossy_and_jittery(seed):
    line = direction(jitter_s=0.005, loss=0.2, seed=seed)
    for number in range(300):
        line.take(number.to_bytes(2, "big"), number * 0.030)
    return list(line.held)


def test_the_same_seed_loses_the_same_frames_and_draws_the_same_delays():
    assert lossy_and_jittery(7) == lossy_and_jittery(7)
    assert lossy_and_jittery(7) != lossy_and_jittery(8)


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.25])
def test_the_fraction_of_frames_lost_is_the_one_asked_for_and_every_one_is_counted(loss):
    line = direction(loss=loss)
    for number in range(5000):
        line.take(b"frame", number * 0.001)
    assert line.lost + len(line.held) == 5000
    assert line.lost / 5000 == pytest.approx(loss, abs=3 * (loss / 5000) ** 0.5)


def test_a_frame_that_cannot_be_sent_is_counted_and_the_next_ones_go_on():
    line = direction(wire=Wire(refused=(b"bad",)))
    for frame in (b"first", b"bad", b"third"):
        line.take(frame, 1.0)
    line.release(2.0)
    assert line.target.frames == [b"first", b"third"]
    found = line.stats()
    assert (found["frames"], found["bytes"], found["send_errors"], found["held"]) == (2, 10, 1, 0)
    assert sum(found["lateness"].values()) == 2


def test_lateness_is_counted_in_steps_of_10_us_and_the_last_takes_the_rest():
    line = direction(delay_s=0.0)
    for late_s in (0.0, 25e-6, 29e-6, 19.995e-3, 20.1e-3, 3.0):
        line.take(b"frame", 0.0)
        line.release(late_s)
        line.last_due = 0.0
    assert line.stats()["lateness"] == {"0": 1, "2": 2, "1999": 1, "2000": 2}


def test_a_change_keeps_the_times_of_frames_already_held_and_holds_at_once_for_new_ones():
    line = direction(delay_s=0.100)
    line.take(b"held", 1.0)
    line.change({"set": line.name, "delay_s": 0.200})
    line.take(b"slower", 1.001)
    assert due_times(line) == [1.1, 1.001 + 0.200]


def test_a_frame_after_a_shorter_delay_waits_for_those_before_it_and_later_ones_do_not():
    line = direction(delay_s=0.100)
    line.take(b"held", 1.0)
    line.change({"delay_s": 0.010})
    line.take(b"would overtake", 1.020)
    line.take(b"free", 1.500)
    assert due_times(line) == [1.1, 1.1, 1.510]


def test_a_change_leaves_what_it_does_not_name():
    line = direction(delay_s=0.010, jitter_s=0.002, loss=0.1)
    line.change({"set": line.name, "loss": 0.5})
    assert (line.delay_s, line.jitter_s, line.loss) == (0.010, 0.002, 0.5)
