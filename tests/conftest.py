"""What tests of every kind share."""

import os

import pytest

from testbed import machine


@pytest.fixture(scope="session")
def emulation():
    """Need root and the emulation's tools; without them the test is skipped, with the reason."""
    try:
        machine.require_emulation()
    except machine.MachineError as reason:
        pytest.skip(str(reason))


@pytest.fixture(autouse=True)
def scheduling():
    """See that no test leaves this process, and whatever later tests start, in real-time scheduling: spinning threads would starve."""
    yield
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
