"""What schemes say they send is what an interface counts: three workers in a network namespace of their own, nothing else in it."""

from __future__ import annotations

import pytest

from tests.unit.workloads.groups import SCHEMES, train_all

PRIVATE = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
TOLERANCE = 0.02
# PowerSGD sums a few kilobytes at a time, of which gloo's framing is a tenth. A segment is framed with 96 bytes where the receiver
# was ready first, else with 144; over a real network it never is, over loopback it mostly is, and we count 144.
FRAMING_SLACK_BYTES = {"powersgd-2": 16}  # a message, of which a segment has three


@pytest.fixture(scope="module")
def answers(emulation):
    return train_all(SCHEMES, prefix=PRIVATE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bytes_counted_are_the_bytes_on_the_interface(answers, scheme):
    counted = sum(answer["counted_bytes"] for answer in answers[scheme])
    wire = answers[scheme][0]["wire_bytes"]  # all ranks share the interface
    messages = sum(answer["messages"] for answer in answers[scheme])
    assert counted == pytest.approx(wire, abs=TOLERANCE * wire + FRAMING_SLACK_BYTES.get(scheme, 0) * messages)
