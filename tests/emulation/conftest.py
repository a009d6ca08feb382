"""Emulation tests need root and the emulation's tools; without them they are skipped, with the reason."""

import pytest

from testbed import machine


@pytest.fixture(autouse=True, scope="session")
def _emulation():
    try:
        machine.require_emulation()
    except machine.MachineError as reason:
        pytest.skip(str(reason))
