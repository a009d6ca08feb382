"""What schemes say they send is what an interface counts: three workers in a network namespace of their own, nothing else in it."""

from __future__ import annotations

import pytest

from tests.unit.workloads.groups import SCHEMES, train_all

PRIVATE = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
TOLERANCE = 0.02
# Gloo frames each message with 96 or 144 bytes, depending on whether the receiver was ready first. That is nobody's choice, and counts
# where messages are as small as here: we count 96 for a message of ours (2 in the count), 144 for a segment of a sum (3).
FRAMING_SLACK_BYTES = 24


@pytest.fixture(scope="module")
def answers(emulation):
    return train_all(SCHEMES, prefix=PRIVATE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_counted_are_the_bytes_on_the_interface(answers, scheme):
    counted = sum(answer["counted_bytes"] for answer in answers[scheme])
    wire = answers[scheme][0]["wire_bytes"]  # all ranks share the interface
    messages = sum(answer["messages"] for answer in answers[scheme])
    assert counted == pytest.approx(wire, abs=TOLERANCE * wire + FRAMING_SLACK_BYTES * messages)
