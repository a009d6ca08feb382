"""A process forked from this one, which has imported already what it needs; used like a Popen."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from io import FileIO
from typing import IO, NoReturn

from testbed.processes import die_with_parent


class Fork:
    """Does `work`, its standard input and output being pipes to us; ends when this process does."""

    def __init__(self, work: Callable[[], None], errors: IO[bytes]) -> None:
        """Fork it; what it complains of goes to `errors`. Call it before there are threads."""
        its_input, our_output = os.pipe()
        our_input, its_output = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, (its_input, its_output, errors.fileno()), parent)
        os.close(its_input)
        os.close(its_output)
        self.stdin, self.stdout = FileIO(our_output, "w"), FileIO(our_input)
        self._pidfd = os.pidfd_open(self.pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, the signal if negative; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return the exit code."""
        if self.returncode is None and not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)


def _be_child(work: Callable[[], None], streams: tuple[int, int, int], parent: int) -> NoReturn:
    code = 1
    try:
        die_with_parent()
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        for ours, standard in zip(streams, range(3), strict=True):
            os.dup2(ours, standard)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # all as a program started anew would find it
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
