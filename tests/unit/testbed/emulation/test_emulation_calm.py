"""A calm moment is waited for, and not for ever."""

import pytest

from testbed.emulation import calm


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping moves."""
    clock = {"s": 100.0}
    monkeypatch.setattr(calm.time, "monotonic", lambda: clock["s"])
    monkeypatch.setattr(calm.time, "sleep", lambda seconds: clock.update(s=clock["s"] + seconds))
    return clock


@pytest.mark.parametrize(("lateness_ms", "told_ms"), [([0.1], []), ([5.0, 1.25, 0.2], ["5.0", "1.2"])])
def test_it_is_waited_until_the_machine_wakes_up_in_time(clock, monkeypatch, lateness_ms, told_ms):
    told, lateness = [], iter(lateness_ms)
    monkeypatch.setattr(calm, "wakeup_lateness_s", lambda: next(lateness) / 1e3)
    assert calm.await_calm(told.append)
    assert [text.split("wakes up ")[1].split(" ms")[0] for text in told] == told_ms


def test_a_machine_that_never_is_calm_is_not_waited_for_longer_than_a_minute(clock, monkeypatch):
    monkeypatch.setattr(calm, "wakeup_lateness_s", lambda: 0.01)
    assert not calm.await_calm(lambda text: None)
    assert clock["s"] == pytest.approx(100 + calm.PATIENCE_S, abs=2 * calm.PAUSE_S)


def test_lateness_is_what_the_latest_hundredth_of_sleeps_took_too_long(clock, monkeypatch):
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        clock["s"] += seconds + (0.004 if len(slept) % 50 == 0 else 0.0)  # one in fifty is late

    monkeypatch.setattr(calm.time, "sleep", sleep)
    assert calm.wakeup_lateness_s() == pytest.approx(0.004)
    monkeypatch.setattr(calm.time, "sleep", lambda seconds: clock.update(s=clock["s"] + seconds))
    assert calm.wakeup_lateness_s() == pytest.approx(0, abs=1e-9)
