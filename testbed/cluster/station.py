"""Where one rank's work is done: a nursery that has torch and the data ready and makes a fresh worker for every run."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from testbed.emulation.child import Child, ChildEnded
from workloads.job import Job, preload_of

READY_TIMEOUT_S = 300.0  # torch and a data set from a slow file system
TICK_S = 0.5


class Station:
    """A nursery with at most one worker at a time."""

    def __init__(self, folder: Path, threads: int) -> None:
        """The folder is for the nursery's log; the threads are those of the libraries that the workers compute with."""
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the nursery imports torch
        self._log = folder / "nursery.log"
        self._renew()

    def _renew(self) -> None:
        """Begin anew: one run's nursery that died must not cost the runs after it."""
        self._nursery = Child("workloads.nursery", self._log)
        self._worker = 0  # its process, 0: none

    def start(self, job: Job, file: Path, log: Path) -> None:
        """Make a worker for a job; the file is where the job is written for it to read."""
        try:
            self._nursery.tell(preload_of(job.scheme, job.workload))
            self._nursery.wait_for("preloaded", READY_TIMEOUT_S)
            job.save(file)
            self._nursery.tell({"job": str(file), "netns_pid": None, "log": str(log)})
            self._worker = self._nursery.wait_for("started", READY_TIMEOUT_S)["pid"]
        except ChildEnded as error:
            said = self._log.read_text(errors="replace")[-500:]
            self._renew()
            raise ChildEnded(f"{error}; it said: {said}") from None

    def poll(self, timeout_s: float = TICK_S) -> int | None:
        """Return the worker's exit code, a signal as a negative number, or None if it goes on."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                messages = self._nursery.hear(max(0.0, deadline - time.monotonic()))
            except ChildEnded:
                self._renew()
                raise
            for message in messages:
                if message["event"] == "exited":
                    self._worker = 0
                    return int(message["code"])
            if time.monotonic() >= deadline:
                return None

    def end(self) -> None:
        """Kill the worker, if there is one; `poll` then tells its end."""
        if self._worker:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGKILL)

    def close(self) -> None:
        """End the nursery and with it the worker."""
        with suppress(ChildEnded):
            self._nursery.stop()
