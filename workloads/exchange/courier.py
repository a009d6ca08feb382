"""The threads that see transfers home: two wait for what arrives, a third decodes.

Waiting and decoding are apart so that the time a bucket is on its way is the network's, not that of another bucket's decoding.
They are daemons: a process whose main thread fails must be able to end, and so hang up on its peers, while they still wait. Nothing
can call gloo's waits off, and the interpreter must not be torn down under them, nor under transfers that a failure left begun: such a
process ends at once, with code 1.
After the first failure nothing is waited for any more: whatever is queued fails with it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

WAITING_THREADS = 2  # as many as gloo has for stock DDP


class Errand(Protocol):
    """Something to wait for and then to finish."""

    def wait(self) -> None:
        """Block until everything has arrived."""

    def finish(self) -> None:
        """Do what there is to do with it."""

    def fail(self, error: Exception) -> None:
        """Take note that this, or an errand before it, failed."""


class Courier:
    """Carry errands in the order given."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._waiting: SimpleQueue[Errand | None] = SimpleQueue()
        self._arrived: SimpleQueue[Errand | None] = SimpleQueue()
        self._under_way: set[Errand] = set()  # those that are still waited for
        atexit.register(self._at_exit)
        for _ in range(WAITING_THREADS):
            threading.Thread(target=self._wait_for_all, name="exchange", daemon=True).start()
        self._finisher = threading.Thread(target=self._finish_all, name="decode", daemon=True)
        self._finisher.start()

    def submit(self, errand: Errand) -> None:
        """Take an errand on; does not block."""
        self._under_way.add(errand)
        self._waiting.put(errand)

    def close(self) -> None:
        """Let the threads end when all is done."""
        atexit.unregister(self._at_exit)
        for _ in range(WAITING_THREADS):
            self._waiting.put(None)
        self._arrived.put(None)

    def _wait_for_all(self) -> None:
        while (errand := self._waiting.get()) is not None:
            arrived = self._attempt(errand, errand.wait)
            self._under_way.discard(errand)
            if arrived:
                self._arrived.put(errand)

    def _finish_all(self) -> None:
        while (errand := self._arrived.get()) is not None:
            self._attempt(errand, errand.finish)

    def _attempt(self, errand: Errand, action: Callable[[], None]) -> bool:
        try:
            if self.failure is not None:
                raise self.failure
            action()
        except Exception as error:
            self.failure = self.failure or error
            errand.fail(error)
            return False
        return True

    def _at_exit(self) -> None:
        if self._under_way or self.failure is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        self._arrived.put(None)  # what has arrived is finished first: it keeps its promise a moment before it is done
        self._finisher.join()
