"""What goes wrong on one rank is told on all, soon, and in words."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from groups import ranks

from tests.unit.workloads.preloaded import Preloaded, await_first

WORLD_SIZE = 3


@dataclass
class Outcome:
    """What became of the ranks."""

    codes: list[int]
    said: list[str]
    complained: list[str]
    seconds: float  # from the end of the first to the end of the last


def run(python: Preloaded, mishap: str, scheme: str) -> Outcome:
    """Let a group meet with a mishap."""
    with ranks(python, "mishaps", "train", WORLD_SIZE, mishap, scheme) as group:
        assert await_first(group, timeout_s=60), "nobody ended"
        first_ended = time.monotonic()
        codes = [fork.wait(timeout_s=60) for fork in group]
        seconds = time.monotonic() - first_ended
        return Outcome(codes, [fork.said for fork in group], [fork.complained for fork in group], seconds)


@pytest.mark.parametrize("scheme", ["3lc", "3lc-ps", "netsense", "fp16"])
def test_an_encoding_that_fails_on_one_rank_ends_all_long_before_the_timeout(python, scheme):
    outcome = run(python, "encode", scheme)
    assert outcome.codes == [1, 1, 1], outcome.complained
    assert "no room to encode" in outcome.complained[1]
    assert f"{scheme}, rank 0, bucket" in outcome.complained[0]
    assert outcome.seconds < 20


def test_ranks_that_attach_different_schemes_are_told_so(python):
    outcome = run(python, "mismatch", "topk-0.1")
    assert outcome.codes == [1, 1, 1], outcome.complained
    assert "ranks 1 attach another scheme or seed than 'topk-0.1'" in outcome.complained[0]


@pytest.mark.parametrize("scheme", ["3lc", "netsense"])
def test_two_models_may_be_trained_in_one_backward(python, scheme):
    outcome = run(python, "two models", scheme)
    assert outcome.codes == [0, 0, 0], outcome.complained
    assert len(set(outcome.said)) == 1


@pytest.mark.parametrize("scheme", ["topk-0.5", "3lc", "onebit"])
def test_a_sum_that_half_precision_cannot_hold_is_averaged_all_the_same(python, scheme):
    outcome = run(python, "half", scheme)
    assert outcome.codes == [0, 0, 0], outcome.complained
    largest = [float(line) for line in outcome.said[0].splitlines()[:-1]]
    assert 22000 < max(largest) < 65504  # the sum over three workers exceeds the largest half
