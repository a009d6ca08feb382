import math
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from testbed.emulation import adjust, conditions
from testbed.emulation.conditions import Conditions, in_words
from testbed.timeline import Change, Timeline
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(4, LinkSpec(10e6, 0.005), LinkSpec(100e6))


@pytest.fixture
def done(monkeypatch):
    """Collect what would be done to the network."""
    found: list = []
    monkeypatch.setattr(adjust, "set_rates", lambda _, rates: found.extend((d.name, rate) for d, rate in rates.items()))
    monkeypatch.setattr(adjust, "set_delay", lambda _, direction, *values: found.append((direction.name, *values)))
    monkeypatch.setattr(adjust, "set_state", lambda _, link, up: found.append((link, up)))
    monkeypatch.setattr(conditions, "realtime", nullcontext)
    return found


def make(*changes: Change, dilation: float = 1.0) -> tuple[Conditions, list]:
    told: list = []
    made = Conditions(SimpleNamespace(description=NETWORK, dilation=dilation), Timeline(changes), lambda *event: told.append(event))
    return made, told


def test_nothing_is_due_before_the_first_step(done):
    one, told = make(Change("bottleneck", at_s=0.0, rate_bps=5e6), Change("bottleneck", at_step=0, loss=0.1))
    one.act()
    assert (one.next_due_s, done, told) == (math.inf, [], [])


def test_times_count_from_the_first_step(done):
    one, told = make(Change("bottleneck", at_s=0.0, rate_bps=5e6), Change("bottleneck", at_s=60.0, rate_bps=1e6))
    origin_s = time.monotonic() - 1.0
    one.step_began(0, origin_s)
    one.act()
    assert done == [("bottleneck:s1->s2", 5e6), ("bottleneck:s2->s1", 5e6)]
    assert one.next_due_s == origin_s + 60
    ((mono_s, kind, text, data),) = told
    assert (kind, text) == ("link_changed", "bottleneck: rate 5mbit")
    assert data["late_s"] == pytest.approx(mono_s - origin_s)
    one.act()
    assert len(told) == 1


def test_a_dilated_change_is_told_in_the_experiments_units(done):
    one, told = make(Change("bottleneck", at_s=4.0, rate_bps=5e6, delay_s=0.02).dilated(4), dilation=4.0)
    one.step_began(0, time.monotonic() - 18)
    one.act()
    assert ("bottleneck:s1->s2", 1.25e6) in done
    assert told[0][2] == "bottleneck: rate 5mbit, delay 20ms"
    assert told[0][3]["at_s"] == 4.0
    assert told[0][3]["late_s"] == pytest.approx(0.5, abs=0.2)


def test_a_change_with_a_step_happens_once_as_the_step_begins(done):
    one, told = make(Change("access-h3", "forward", at_step=7, delay_s=0.02, jitter_s=0.001))
    one.step_began(0, 5.0)
    assert done == []
    one.step_began(7, 9.0)
    one.step_began(7, 9.0)
    assert done == [("access-h3:h3->s2", 0.02, 0.001, None)]
    assert "late_s" not in told[0][3]
    assert one.next_due_s == math.inf


def test_of_late_changes_of_a_rate_the_last_holds(done):
    one, told = make(Change("bottleneck", "backward", at_s=1.0, rate_bps=5e6), Change("bottleneck", "backward", at_s=2.0, rate_bps=6e6))
    one.step_began(0, time.monotonic() - 10)
    one.act()
    assert done == [("bottleneck:s2->s1", 6e6)]
    assert len(told) == 2


def test_a_link_comes_up_before_its_values_change_and_goes_down_after(done):
    one, _ = make(Change("bottleneck", at_s=0.0, state="up", loss=0.5), Change("bottleneck", at_s=0.0, state="down", loss=0.1))
    one.step_began(0, time.monotonic() - 1)
    one.act()
    assert [entry for entry in done if len(entry) == 2 and entry[0] == "bottleneck"] == [("bottleneck", True), ("bottleneck", False)]
    assert done[0] == ("bottleneck", True)
    assert done[-1] == ("bottleneck", False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change("bottleneck", at_s=0, rate_bps="unlimited", delay_s=0.02), "bottleneck: rate unlimited, delay 20ms"),
        (Change("access-h1", "forward", at_s=0, jitter_s=0.001, loss=0.01), "access-h1 (forward): jitter 1ms, loss 1%"),
        (Change("bottleneck", at_step=3, state="down"), "bottleneck: down"),
    ],
)
def test_a_change_in_words(change, words):
    assert in_words(change) == words


@pytest.mark.parametrize(
    ("rate", "mtu", "bps"), [(5e6, 1500, 5e6), ("unlimited", 1500, 10e9), (0.0, 1500, 121_120.0), (0.0, 9000, 721_120.0)]
)
def test_nothing_and_no_limit_in_numbers(rate, mtu, bps):
    assert adjust.shaped_bps(rate, mtu) == bps
