"""How all ranks evaluate or stop before the same step without a message on the measured network.

Rank 0 decides by its own clock after finishing step c and, before starting step c+1, writes to a control file "before
starting step S do X" with S = c+2. Every rank looks into the file at the start of each step.

Why +2 suffices: a rank can finish step c+1 only with rank 0's gradient of step c+1, which rank 0 computes after writing.
So whoever starts step c+2 finds the instruction there. +1 would not do: a rank may start step c+1 before rank 0 has
even finished step c. Why nothing is lost: rank 0 cannot finish step S before every rank has contributed to S, thus has
looked, so it may drop instructions for steps it has finished, and only those.

The ranks must share a file system that shows a rename at once: one machine, as emulated runs have.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

EVALUATE = "evaluate"
STOP = "stop"
AHEAD = 2
FILE = "control.json"


class Announcer:
    """Rank 0's end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._pending: dict[int, str] = {}
        self._write()

    def announce(self, finished_step: int, action: str) -> int:
        """Have all ranks act before starting the step two after the finished one; return that step."""
        step = finished_step + AHEAD
        self._pending = {s: a for s, a in self._pending.items() if s > finished_step}
        self._pending[step] = action
        self._write()
        return step

    def _write(self) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps({str(s): a for s, a in self._pending.items()}))
        os.replace(temporary, self._path)


class Listener:
    """Every rank's end, rank 0's too."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def action_before(self, step: int) -> str | None:
        """Return what to do before starting a step: evaluate, stop, or nothing."""
        try:
            action: str | None = json.loads(self._path.read_bytes()).get(str(step))
        except FileNotFoundError:  # rank 0 has not begun
            return None
        return action
