"""Sandboxes, one after the other, forked from one process that imports torch and loads data sets once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

from testbed.processes import die_with_parent


class Sandboxes:
    """The process that every run's sandbox is forked from; it and all it made end when the `with` block does."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.log = Path()  # of the process: it began in the folder of the run that first needed it

    def __enter__(self) -> Sandboxes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.discard()

    def process(self, log: Path) -> subprocess.Popen[bytes]:
        """Return the process, ready for a plan; a new one, with its complaints in the log, if there is none."""
        if self._process is not None and self._process.poll() is not None:
            self.discard()
        if self._process is None:
            self.log = log
            with log.open("ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "testbed.emulation.inside"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,  # Ctrl-C is the runner's to handle
                    preexec_fn=die_with_parent,
                )
        return self._process

    def discard(self) -> None:
        """End the process, and with it the sandbox that it may be in; return when all of it is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        if process.poll() is None:
            process.kill()
        process.stdout.read()  # ends when the sandbox's process 1 is gone, and everything with it
        process.wait()
        process.stdout.close()
        process.stdin.close()
