"""How often a queue is sampled, and what the sampler is told."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation import sampler
from testbed.emulation.network import Queue
from testbed.emulation.sampler import job
from testbed.emulation.sampling import interval_s
from topologies import Direction, LinkSpec

rates = st.floats(1e4, 1e11)
limits = st.integers(0, 10**9)


@given(rates, limits)
def test_a_bottleneck_is_sampled_every_one_to_five_milliseconds(rate_bps, queue_bytes):
    assert 0.001 <= interval_s(True, rate_bps, queue_bytes) <= 0.005


@given(rates, limits)
def test_a_full_bottleneck_queue_cannot_empty_between_two_samples_unless_it_drains_in_three_milliseconds(rate_bps, queue_bytes):
    drains_in_s = queue_bytes * 8 / rate_bps
    assert interval_s(True, rate_bps, queue_bytes) <= max(0.001, drains_in_s / 3)


@given(rates, limits, limits)
def test_a_larger_queue_is_never_sampled_more_often(rate_bps, one, other):
    assert interval_s(True, rate_bps, min(one, other)) <= interval_s(True, rate_bps, max(one, other))


@given(rates, limits)
def test_other_queues_are_sampled_ten_times_a_second(rate_bps, queue_bytes):
    assert interval_s(False, rate_bps, queue_bytes) == 0.1


def test_a_queue_of_nine_milliseconds_is_sampled_every_three():
    assert interval_s(True, 8e6, 9000) == pytest.approx(0.003)


def test_only_shaped_directions_are_sampled_each_in_its_namespace():
    shaped = Direction("bottleneck", "s1", "s2", LinkSpec(8e6, queue_bytes=9000), bottleneck=True)
    slow = Direction("access-h1", "h1", "s1", LinkSpec(8e6, queue_bytes=9000), bottleneck=False)
    free = Direction("access-h1", "s1", "h1", LinkSpec(None), bottleneck=False)
    order = job([Queue(shaped, "s1-eth1", None), Queue(slow, "h1-eth0", 123), Queue(free, "s1-eth2", None)], "links.jsonl")
    assert order["output"] == "links.jsonl"
    assert [(q["interface"], q["namespace_pid"], q["interval_s"]) for q in order["queues"]] == [
        ("s1-eth1", None, interval_s(True, 8e6, 9000)),
        ("h1-eth0", 123, 0.1),
    ]
    first = {key: order["queues"][0][key] for key in ("link", "source", "target", "rate_bps", "queue_bytes")}
    assert first == {"link": "bottleneck", "source": "s1", "target": "s2", "rate_bps": 8e6, "queue_bytes": 9000}


class NeverStops(Exception):
    """The sampler went on long after its input had closed."""


class Sampled:
    """A queue that answers at once."""

    def __init__(self, entry):
        self.interval_s = entry["interval_s"]
        self._rows = 0

    def row(self):
        self._rows += 1
        if self._rows > 200:
            raise NeverStops
        return None if self._rows == 2 else f"{self._rows}\n"


@pytest.fixture
def sample(monkeypatch, tmp_path):
    """Run the sampler over one such queue, its input closed after the order; return what it wrote."""

    def sample(interval_s: float) -> list[str]:
        output = tmp_path / "links.jsonl"
        reading, writing = os.pipe()
        os.write(writing, json.dumps({"output": str(output), "queues": [{"interval_s": interval_s}]}).encode() + b"\n")
        os.close(writing)
        with open(reading) as stdin:
            monkeypatch.setattr(sampler, "die_with_parent", lambda: None)
            monkeypatch.setattr(sampler.os, "sched_setscheduler", lambda *ignored: None)  # it would hold for all tests that follow
            monkeypatch.setattr(sampler, "_Sampled", Sampled)
            monkeypatch.setattr("sys.stdin", stdin)
            sampler.main()
        return output.read_text().splitlines()

    return sample


def test_the_sampler_stops_when_its_input_closes_and_has_written_every_row_but_those_held_up(sample):
    assert sample(60.0) == ["1"]


def test_a_sampler_that_cannot_keep_up_stops_when_its_input_closes_too(sample):
    assert sample(0.0)
