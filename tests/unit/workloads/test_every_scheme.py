"""Three workers over loopback with every scheme: equal replicas, one ratio, and a peer that fails."""

from __future__ import annotations

import signal
import time

import pytest
from groups import SCHEMES, ranks, train_group

from workloads.schemes import schemes


@pytest.fixture(scope="module")
def answers(python):
    return train_group(python, SCHEMES)


def test_the_list_has_every_scheme_of_the_registry():
    assert {name for name in schemes() if not any(given == name or given.startswith(f"{name}-") for given in SCHEMES)} == set()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_replicas_are_bit_identical(answers, scheme):
    assert len({answer["digest"] for answer in answers[scheme]}) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_ranks_agree_on_the_ratio_of_every_step(answers, scheme):
    assert len({tuple(answer["ratios"]) for answer in answers[scheme]}) == 1


def test_schemes_do_something_of_their_own(answers):
    """Only the schemes that happen to send everything may end with the same model."""
    digests = {scheme: told[0]["digest"] for scheme, told in answers.items()}
    assert len(set(digests.values())) >= len(SCHEMES) - 4


@pytest.mark.parametrize(
    ("scheme", "least", "most"), [("topk-0.05", 0.05, 0.2), ("3lc", 0.001, 0.1), ("onebit", 0.02, 0.12), ("qsgd", 0.2, 0.6)]
)
def test_compressed_schemes_send_less(answers, scheme, least, most):
    dense = answers["none"][0]["counted_bytes"]
    assert least < answers[scheme][0]["counted_bytes"] / dense < most


@pytest.mark.parametrize(("scheme", "number"), [("3lc", signal.SIGKILL), ("netsense", signal.SIGKILL), ("3lc-ps", signal.SIGTERM)])
def test_a_rank_that_fails_does_not_leave_the_others_hanging(python, scheme, number):
    with ranks(python, "replicas", "train_on", 2, scheme) as (other, failing):
        deadline = time.monotonic() + 60
        while failing.said.count("step") < 3:  # it trains, and DDP has rebuilt its buckets
            assert time.monotonic() < deadline, failing.complained
            time.sleep(0.01)
        failing.send_signal(number)
        assert other.wait(timeout_s=20) == 1
        assert "Error" in other.complained
