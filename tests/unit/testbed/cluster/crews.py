"""Machines as ranks describe them, for tests."""

from __future__ import annotations

from dataclasses import replace

from testbed.cluster.roster import Machine

MACHINE = Machine("node1", "eth0", "10.0.0.1", 1500, "cubic", "cpu", 1, "6.1", 8, {"torch": "2.13.0", "numpy": "2.4"}, "abc")


def machines(count: int) -> list[Machine]:
    """Make so many machines that differ in name and address only."""
    return [replace(MACHINE, host=f"node{i + 1}", address=f"10.0.0.{i + 1}") for i in range(count)]
