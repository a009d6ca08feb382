"""The experiment's time. In a run with `dilation: k`, k seconds of the machine are one second of the experiment.

Everything a worker times goes by this clock, so that schedules, budgets, records and policies need not know of dilation. Sleeping and the
network are slowed down with it; real computing is not. So whatever a worker really computes is done in `work()`, which then sleeps k - 1
times the CPU time it took: on this clock it takes what it took without dilation. CPU time, not wall time: waiting for a processor is
the machine's doing, and slowed down it would grow with k.
"""

from __future__ import annotations

import time
from types import TracebackType


class Clock:
    """Tell and pass the experiment's time."""

    def __init__(self, dilation: float = 1.0) -> None:
        self.dilation = dilation

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.perf_counter() / self.dilation

    def sleep(self, seconds: float) -> None:
        """Let so many seconds pass."""
        time.sleep(seconds * self.dilation)

    def work(self) -> Work:
        """Return a `with` block for real computing on this thread."""
        return Work(self.dilation)


class Work:
    """Real computing of one thread; on leaving, what slower time adds has been slept."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self.cpu_s = 0.0  # that it took, of the machine's seconds; once it is over

    def __enter__(self) -> Work:
        self._began_s = time.thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cpu_s = time.thread_time() - self._began_s
        if error is None and self._factor > 1:
            time.sleep((self._factor - 1) * self.cpu_s)
