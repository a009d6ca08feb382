"""What tests of every kind share."""

import pytest

from testbed import machine


@pytest.fixture(scope="session")
def emulation():
    """Need root and the emulation's tools; without them the test is skipped, with the reason."""
    try:
        machine.require_emulation()
    except machine.MachineError as reason:
        pytest.skip(str(reason))
