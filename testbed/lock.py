"""One emulation at a time on a machine: two at once spoil each other's fidelity.

An exclusive run holds `MACHINE`. A run told to share does not wait for it, but leaves its mark on `SHARED`, so that both know.
Locks are the kernel's: a killed run holds none.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

FOLDER = Path("/run")  # only root writes here
MACHINE = "netsense-testbed.lock"
SHARED = "netsense-testbed-shared.lock"


class MachineLock:
    """Hold the machine for as long as the `with` block lasts, alone or shared."""

    def __init__(self, share: bool, waiting: Callable[[str], None], folder: Path = FOLDER) -> None:
        """`waiting` is called once with a sentence if another run has to be waited for."""
        self._share = share
        self._waiting = waiting
        self._machine = os.open(folder / MACHINE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._shared_path = folder / SHARED
        self._shared = os.open(self._shared_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> MachineLock:
        if self._share:
            fcntl.flock(self._shared, fcntl.LOCK_SH)
            self._mark()
        elif not _try(self._machine, fcntl.LOCK_EX):
            holder = os.pread(self._machine, 32, 0).decode().strip() or "unknown"
            self._waiting(
                f"another run (process {holder}) is using this machine; waiting for it to end. "
                "Use --share to run beside it: both runs are then flagged as sharing the machine."
            )
            fcntl.flock(self._machine, fcntl.LOCK_EX)
        if not self._share:
            os.ftruncate(self._machine, 0)
            os.pwrite(self._machine, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._share:
            self._mark()
        os.close(self._machine)
        os.close(self._shared)

    def was_shared(self, since: float) -> bool:
        """Tell whether another run may have used the machine since the given `time.time()`; one told to share always says so."""
        if self._share:
            return True
        beside = not _try(self._shared, fcntl.LOCK_EX)
        if not beside:
            fcntl.flock(self._shared, fcntl.LOCK_UN)
        return beside or self._shared_path.stat().st_mtime >= since

    def _mark(self) -> None:
        os.utime(self._shared_path, (time.time(), time.time()))


def _try(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
