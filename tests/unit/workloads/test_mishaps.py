"""What goes wrong on one rank is told on all, soon, and in words."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from groups import ROOT, free_port

WORLD_SIZE = 3


@dataclass
class Outcome:
    """What became of the ranks."""

    codes: list[int]
    said: list[str]
    complained: list[str]
    seconds: float  # from the end of the first to the end of the last


def run(mishap: str, scheme: str) -> Outcome:
    """Let a group meet with a mishap."""
    port = str(free_port())
    command = [sys.executable, "-m", "tests.unit.workloads.mishaps"]
    group = [
        subprocess.Popen(
            [*command, str(rank), str(WORLD_SIZE), port, mishap, scheme],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD_SIZE)
    ]
    try:
        deadline = time.monotonic() + 60
        while all(process.poll() is None for process in group):
            assert time.monotonic() < deadline, "nobody ended"
            time.sleep(0.05)
        first_ended = time.monotonic()
        told = [process.communicate(timeout=60) for process in group]
        seconds = time.monotonic() - first_ended
        return Outcome([p.returncode for p in group], [said for said, _ in told], [complaint for _, complaint in told], seconds)
    finally:
        for process in group:
            process.kill()
            process.wait()


@pytest.mark.parametrize("scheme", ["3lc", "3lc-ps", "netsense", "fp16"])
def test_an_encoding_that_fails_on_one_rank_ends_all_long_before_the_timeout(scheme):
    outcome = run("encode", scheme)
    assert outcome.codes == [1, 1, 1], outcome.complained
    assert "no room to encode" in outcome.complained[1]
    assert f"{scheme}, rank 0, bucket" in outcome.complained[0]
    assert outcome.seconds < 20


def test_ranks_that_attach_different_schemes_are_told_so():
    outcome = run("mismatch", "topk-0.1")
    assert outcome.codes == [1, 1, 1], outcome.complained
    assert "ranks 1 attach another scheme or seed than 'topk-0.1'" in outcome.complained[0]


@pytest.mark.parametrize("scheme", ["3lc", "netsense"])
def test_two_models_may_be_trained_in_one_backward(scheme):
    outcome = run("two models", scheme)
    assert outcome.codes == [0, 0, 0], outcome.complained
    assert len(set(outcome.said)) == 1


@pytest.mark.parametrize("scheme", ["topk-0.5", "3lc", "onebit"])
def test_a_sum_that_half_precision_cannot_hold_is_averaged_all_the_same(scheme):
    outcome = run("half", scheme)
    assert outcome.codes == [0, 0, 0], outcome.complained
    largest = [float(line) for line in outcome.said[0].splitlines()[:-1]]
    assert 22000 < max(largest) < 65504  # the sum over three workers exceeds the largest half
