"""Benchmarks are run by hand: what they borrow from the tests must still be there."""

from tests import bench


def test_every_part_can_be_asked_for():
    assert {"emulator", "hooks", "sweep", "containers", "analysis"} <= bench.PARTS.keys()
