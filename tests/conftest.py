"""What tests of every kind share."""

import os

import pytest
from hypothesis import settings

from testbed import machine

settings.register_profile("shared machine", deadline=None)  # a slow moment of the machine is no fault of the code
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def emulation():
    """Need root and the emulation's tools; without them the test is skipped, with the reason.

    What the machine carries is measured here, once, and not while a test waits for its run to begin.
    """
    try:
        machine.require_emulation()
    except machine.MachineError as reason:
        pytest.skip(str(reason))
    machine.ceiling_bps(1500, machine.has_kernel_datapath())


@pytest.fixture(autouse=True)
def scheduling():
    """See that no test leaves this process, and whatever later tests start, in real-time scheduling: spinning threads would starve."""
    yield
    assert os.sched_getscheduler(0) not in (os.SCHED_FIFO, os.SCHED_RR)
