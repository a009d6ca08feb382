"""Tell whoever runs the network that a measured step begins: changes of links are due at times from the first step on, or with a step.

By a named pipe in the run's stream folder. Rank 0 tells of the first step and of those it was asked for, and waits for nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

PIPE = "herald.pipe"


def open_for_reading(folder: Path) -> int:
    """Make the pipe, before the workers start; return a descriptor that reads what is told and never ends."""
    path = folder / PIPE
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


class Herald:
    """Rank 0's end; where nobody reads it says nothing."""

    def __init__(self, folder: Path, steps: Iterable[int] = ()) -> None:
        self._steps = {0, *steps}
        try:
            self._pipe = os.open(folder / PIPE, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no pipe, or nobody at its other end
            self._pipe = -1

    def begins(self, step: int) -> None:
        """Tell that a step begins now, if anybody wants to know."""
        if self._pipe >= 0 and step in self._steps:
            os.write(self._pipe, json.dumps({"step": step, "mono_s": time.monotonic()}).encode() + b"\n")
