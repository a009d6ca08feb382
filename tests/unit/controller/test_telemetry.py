"""A queue's record in the terms of people: against the rate configured at this moment, and honest about what is not known."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from controller.board import Entry, OpenFlowReading, QueueInfo, QueueReading
from controller.metrics import exposition
from controller.telemetry import link_state

INFO = QueueInfo("bottleneck:s1->s2/training", "bottleneck", "s1", "s2", "training", 50_000, 0.005, True)
QUEUE = QueueReading(100.0, 9_000_000, 6000, 25_000, 17, 7, 40, 8e6, 3.5)
OPENFLOW = OpenFlowReading(99.5, 1, 2, 3, 4, 5, 6, 7)
ENTRY = Entry(INFO, 10e6, 0.005, 1, QUEUE, OPENFLOW)


def test_a_state_says_which_queue_it_is_of():
    state = link_state(ENTRY, 100.0)
    assert (state.id, state.link, state.source, state.target, state.queue) == (INFO.name, "bottleneck", "s1", "s2", "training")


def test_utilisation_and_backlog_are_against_the_configured_rate():
    state = link_state(ENTRY, 100.0)
    assert (state.configured_bps, state.sent_bps, state.queue_bytes, state.backlog_bytes) == (10e6, 8e6, 50_000, 25_000)
    assert state.utilisation == pytest.approx(0.8)
    assert state.backlog_ms == pytest.approx(20.0)
    slower = link_state(replace(ENTRY, configured_bps=2.5e6), 100.0)
    assert slower.utilisation == pytest.approx(3.2)
    assert slower.backlog_ms == pytest.approx(80.0)


def test_drops_overlimits_and_age_are_those_of_the_reading():
    state = link_state(ENTRY, 100.25)
    assert (state.dropped_packets, state.drops_per_s, state.overlimits, state.age_s) == (7, 3.5, 40, 0.25)


def test_a_reading_that_is_newer_than_the_look_at_the_clock_has_no_negative_age():
    assert link_state(ENTRY, 99.999).age_s == 0.0


def test_what_the_switch_said_comes_along():
    assert link_state(ENTRY, 100.0).openflow == asdict(OPENFLOW)


def test_of_a_queue_that_was_never_read_only_its_configuration_is_known():
    state = asdict(link_state(Entry(INFO, 10e6, 0.005, 0, None, None), 100.0))
    known = {"id", "link", "source", "target", "queue", "configured_bps", "queue_bytes"}
    assert {name for name, value in state.items() if value is not None} == known


def test_without_a_configured_rate_there_is_nothing_to_compare_with():
    state = link_state(replace(ENTRY, configured_bps=0.0), 100.0)
    assert (state.sent_bps, state.utilisation, state.backlog_ms) == (8e6, None, None)


def test_what_the_switch_does_not_count_is_null_and_has_no_line_in_the_metrics():
    entry = replace(ENTRY, openflow=replace(OPENFLOW, port_tx_dropped=None))
    assert link_state(entry, 100.0).openflow == asdict(OPENFLOW) | {"port_tx_dropped": None}
    lines = exposition([entry], {}, 100.0).decode().splitlines()
    counts = [line.partition("{")[0] for line in lines if line.startswith("testbed_openflow_port_tx")]
    assert counts == ["testbed_openflow_port_tx_bytes_total", "testbed_openflow_port_tx_packets_total"]
