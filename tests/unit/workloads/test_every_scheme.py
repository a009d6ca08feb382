"""Three workers over loopback with every scheme: equal replicas, one ratio, and a peer that fails."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from groups import ROOT, SCHEMES, free_port, train_all

from workloads.schemes import schemes


@pytest.fixture(scope="module")
def answers():
    return train_all(SCHEMES)


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
def test_a_rank_that_fails_does_not_leave_the_others_hanging(scheme, number):
    port = str(free_port())
    command = [sys.executable, "-m", "tests.unit.workloads.replicas"]
    group = [
        subprocess.Popen(
            [*command, str(rank), "2", port, *[scheme] * 500], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        assert group[1].stdout is not None
        group[1].stdout.readline()  # it trains
        group[1].send_signal(number)
        began = time.monotonic()
        _, complaint = group[0].communicate(timeout=30)
        assert time.monotonic() - began < 20
        assert group[0].returncode == 1
        assert "Error" in complaint
    finally:
        for process in group:
            process.kill()
            process.communicate()
