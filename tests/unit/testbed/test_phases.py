"""The phases of a run: in order, adding up to the whole, whatever was noted of them."""

from __future__ import annotations

import pytest

from testbed.phases import Moments, phases_s

MOMENTS = Moments(began_s=100.0, ended_s=121.0, judged_s=121.5, written_s=122.0)
EVENTS = [
    {"kind": "booted", "mono_s": 101.0},
    {"kind": "verified", "mono_s": 103.0},
    {"kind": "first_step", "mono_s": 103.5},
    {"kind": "first_step", "mono_s": 104.0},  # the slowest worker's
    {"kind": "warmup_done", "mono_s": 106.0},
    {"kind": "rerouted", "mono_s": 107.0},
    {"kind": "measured_start", "mono_s": 107.0},
    {"kind": "measured_end", "mono_s": 118.0},
]


def test_each_phase_lasts_from_the_one_before_to_the_last_worker():
    assert phases_s(EVENTS, [{"mono_s": 106.5}, {"mono_s": 120.0}], MOMENTS) == {
        "boot": 1.0,
        "verification": 2.0,
        "first_step": 1.0,
        "warm_up": 2.0,
        "first_evaluation": 1.0,
        "measured": 11.0,
        "last_evaluation": 2.0,
        "ending": 1.0,
        "judging": 0.5,
        "writing": 0.5,
    }


@pytest.mark.parametrize("missing", [set(), {"booted"}, {"warmup_done", "measured_end"}, {row["kind"] for row in EVENTS}])
def test_phases_add_up_to_the_whole_also_where_something_was_not_noted(missing):
    found = phases_s([row for row in EVENTS if row["kind"] not in missing], [], MOMENTS)
    assert sum(found.values()) == pytest.approx(22.0)
    assert "last_evaluation" not in found
