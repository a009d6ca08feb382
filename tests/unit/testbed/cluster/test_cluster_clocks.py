"""Rows of other machines on rank 0's clock."""

from __future__ import annotations

import json

from testbed.cluster.clocks import moved, offset_s


def events(**times_s):
    return [{"kind": kind, "mono_s": mono_s} for kind, mono_s in times_s.items()]


def test_the_moment_before_the_first_measured_step_sets_the_clocks():
    own, reference = events(joined=5.0, measured_start=9.0), events(joined=104.0, measured_start=109.5)
    assert offset_s(own, reference) == 100.5


def test_a_run_that_failed_before_it_is_set_by_the_moment_the_group_was_joined():
    assert offset_s(events(joined=5.0), events(joined=104.0, measured_start=109.5)) == 99.0


def test_without_a_moment_in_common_nothing_is_claimed():
    assert offset_s(events(started=5.0), events(started=104.0, joined=105.0)) is None


def test_rows_keep_everything_but_their_time():
    rows = [{"mono_s": 5.0, "step": 3, "loss": None}, {"mono_s": 6.5, "data": {"a": [1]}}]
    lines = [json.loads(line) for line in moved(rows, 100.0).splitlines()]
    assert lines == [{"mono_s": 105.0, "step": 3, "loss": None}, {"mono_s": 106.5, "data": {"a": [1]}}]
    assert moved([], 1.0) == ""
