"""How fast a worker computes: the experiment's clock, drawn slowdowns, and how computing is made to take longer."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import pytest
import torch

from workloads import clock, pace
from workloads.clock import Clock
from workloads.pace import MIN_SLEEP_S, Schedule, Slowdown, Slowdowns, Stretch


class FakeTime:
    """The machine's clocks, moved by hand; a sleep lasts `overshoot_s` longer than asked for."""

    def __init__(self) -> None:
        self.wall_s, self.cpu_s, self.overshoot_s = 1000.0, 50.0, 0.0
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return self.wall_s

    def thread_time(self) -> float:
        return self.cpu_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.wall_s += seconds + self.overshoot_s

    def compute(self, seconds: float, waiting_s: float = 0.0) -> None:
        self.wall_s += seconds + waiting_s
        self.cpu_s += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    stand_in = SimpleNamespace(perf_counter=fake.perf_counter, thread_time=fake.thread_time, sleep=fake.sleep)
    monkeypatch.setattr(clock, "time", stand_in)
    monkeypatch.setattr(pace, "time", stand_in)
    return fake


def test_the_experiments_second_takes_as_many_of_the_machines_as_it_is_dilated(machine: FakeTime) -> None:
    slow = Clock(5.0)
    began = slow.now()
    slow.sleep(0.2)
    assert machine.slept == [pytest.approx(1.0)]
    assert slow.now() - began == pytest.approx(0.2)


def test_work_takes_on_the_clock_what_it_took_of_the_processor(machine: FakeTime) -> None:
    slow = Clock(5.0)
    began = slow.now()
    with slow.work() as work:
        machine.compute(0.010)
    assert work.cpu_s == pytest.approx(0.010)
    assert slow.now() - began == pytest.approx(0.010)


def test_waiting_for_a_processor_is_not_slowed_down_too(machine: FakeTime) -> None:
    slow = Clock(5.0)
    began = slow.now()
    with slow.work():
        machine.compute(0.010, waiting_s=0.005)
    assert slow.now() - began == pytest.approx(0.010 + 0.005 / 5)


def test_without_dilation_nothing_is_slept_after_work(machine: FakeTime) -> None:
    with Clock().work():
        machine.compute(0.010)
    assert machine.slept == []


def test_work_that_fails_is_not_slowed_down(machine: FakeTime) -> None:
    with pytest.raises(ValueError, match="broken"), Clock(5.0).work():
        raise ValueError("broken")
    assert machine.slept == []


def factors(*given: Slowdown, seed: int = 1, rank: int = 0, steps: int = 2000) -> list[float]:
    slowdowns = Slowdowns(given, seed, rank)
    return [slowdowns.of(step) for step in range(steps)]


def test_a_constant_slowdown_is_the_same_in_every_step() -> None:
    assert set(factors(Slowdown(1.5, 1.5))) == {1.5}
    assert set(factors()) == {1.0}


def test_a_range_is_drawn_anew_in_every_step() -> None:
    drawn = factors(Slowdown(1.0, 3.0))
    assert 1.0 <= min(drawn) < 1.05 and 2.95 < max(drawn) <= 3.0
    assert statistics.mean(drawn) == pytest.approx(2.0, abs=0.05)


def test_a_chance_is_taken_that_often() -> None:
    drawn = factors(Slowdown(2.0, 2.0, chance=0.1))
    assert set(drawn) == {1.0, 2.0}
    assert drawn.count(2.0) / len(drawn) == pytest.approx(0.1, abs=0.03)


def test_several_reasons_multiply_and_are_drawn_apart() -> None:
    drawn = factors(Slowdown(2.0, 2.0, 0.5), Slowdown(3.0, 3.0, 0.5))
    assert set(drawn) == {1.0, 2.0, 3.0, 6.0}


def test_slowdowns_are_the_same_for_a_seed_and_rank_and_differ_between_them() -> None:
    one = factors(Slowdown(1.0, 3.0))
    assert factors(Slowdown(1.0, 3.0)) == one
    assert factors(Slowdown(1.0, 3.0), seed=2) != one
    assert factors(Slowdown(1.0, 3.0), rank=1) != one
    assert Slowdowns([Slowdown(1.0, 3.0)], 1, 0).of(1999) == one[1999]  # whatever was asked for before


def test_a_schedule_is_kept_on_the_experiments_clock_and_postponed_by_encoding(machine: FakeTime) -> None:
    slow, encoded_s = Clock(2.0), 0.0
    schedule = Schedule(slow, lambda: encoded_s)
    schedule.begin()
    began = slow.now()
    machine.compute(0.010)  # 5 ms of the experiment: they count against the schedule
    schedule.wait_until(0.020)
    assert slow.now() - began == pytest.approx(0.020)
    machine.compute(0.004)
    encoded_s = 0.002
    schedule.wait_until(0.030)
    assert slow.now() - began == pytest.approx(0.032)


@pytest.mark.parametrize(("dilation", "slowdown"), [(1.0, 1.5), (5.0, 1.0), (5.0, 2.0)])
def test_stretched_computing_takes_the_slowdown_on_the_clock(machine: FakeTime, dilation: float, slowdown: float) -> None:
    experiment = Clock(dilation)
    stretch = Stretch(experiment, lambda: 0.0, [])
    began = experiment.now()
    stretch.begin(slowdown)
    for _ in range(3):
        machine.compute(0.010)
        stretch.catch_up()
    assert experiment.now() - began == pytest.approx(0.030 * slowdown)


def test_what_was_overslept_is_not_slept_again(machine: FakeTime) -> None:
    machine.overshoot_s = 0.001
    stretch = Stretch(Clock(), lambda: 0.0, [])
    stretch.begin(2.0)
    began = machine.wall_s
    for _ in range(10):
        machine.compute(0.010)
        stretch.catch_up()
    assert machine.wall_s - began == pytest.approx(0.200, abs=0.0011)


def test_pieces_too_short_to_sleep_for_are_put_together(machine: FakeTime) -> None:
    stretch = Stretch(Clock(), lambda: 0.0, [])
    stretch.begin(2.0)
    for _ in range(4):
        machine.compute(0.4 * MIN_SLEEP_S)
        stretch.catch_up()
    assert machine.slept == [pytest.approx(1.2 * MIN_SLEEP_S)]


def test_encoding_and_waiting_for_the_network_are_no_computing(machine: FakeTime) -> None:
    encode_cpu_s = 0.0
    stretch = Stretch(Clock(), lambda: encode_cpu_s, [])
    stretch.begin(2.0)
    machine.compute(0.010)
    encode_cpu_s = 0.010
    stretch.catch_up()
    machine.compute(0.002, waiting_s=0.5)  # the end of backward
    stretch.begin(2.0)
    machine.compute(0.003)
    stretch.catch_up()
    assert machine.slept == [pytest.approx(0.003)]


def test_a_worker_that_is_not_slow_is_left_alone(machine: FakeTime) -> None:
    stretch = Stretch(Clock(), lambda: 0.0, [])
    stretch.begin(1.0)
    machine.compute(0.010)
    stretch.catch_up()
    assert machine.slept == []


def test_every_gradient_is_held_back_before_anybody_has_it(machine: FakeTime) -> None:
    first, second = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    order: list[str] = []
    stretch = Stretch(Clock(), lambda: 0.0, [first, second])
    for name, parameter in (("first", first), ("second", second)):
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(f"{name} after {len(machine.slept)}"))
    second.register_hook(lambda _: machine.compute(0.010))
    stretch.begin(3.0)
    machine.compute(0.010)
    (first * second.detach()).sum().backward()
    (second * first.detach()).sum().backward()
    assert order == ["first after 1", "second after 1"]  # the second's 10 ms came after its own hook
    stretch.catch_up()
    assert machine.slept == [pytest.approx(0.020), pytest.approx(0.020)]
