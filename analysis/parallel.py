"""Do the same work on many things, on several processors: a sweep has hundreds of runs, and a figure takes seconds to draw.

Processes are forked, so that they share what was read before. Each takes tickets from a pipe and sends its answers back; what has no
answer, because the work failed or its process was killed, is done here, where its exception is seen.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")
MOST_PROCESSES = 4  # each takes some 100 MB of its own
TICKET_BYTES = 4


def processors() -> int:
    """Return how many processes are of use here: 1 where they cannot be forked safely."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


def each(work: Callable[[T], R], things: Sequence[T], processes: int | None = None) -> list[R]:
    """Return what `work` makes of each thing, in their order. Answers must be picklable; what `work` changes is changed elsewhere."""
    count = min(processors() if processes is None else processes, len(things))
    answers = _ask(work, things, count) if count > 1 else {}
    return [answers[number] if number in answers else work(thing) for number, thing in enumerate(things)]


def _ask(work: Callable[[T], R], things: Sequence[T], count: int) -> dict[int, R]:
    """Fork so many processes and gather their answers, by the number of the thing."""
    tickets, desk = os.pipe()
    os.write(desk, b"".join(number.to_bytes(TICKET_BYTES, "big") for number in range(len(things))[: 65_536 // TICKET_BYTES]))
    os.close(desk)
    busy = dict(_fork(work, things, tickets) for _ in range(count))
    os.close(tickets)
    answers: dict[int, R] = {}
    try:
        while busy:
            for reader in cast(list[Connection], wait(list(busy))):
                try:
                    number, answer = reader.recv()
                    answers[number] = answer
                except (EOFError, OSError):
                    os.waitpid(busy.pop(reader), 0)
                    reader.close()
    finally:  # interrupted, or an answer that cannot be read
        for reader, pid in busy.items():
            reader.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return answers


def _fork(work: Callable[[T], R], things: Sequence[T], tickets: int) -> tuple[Connection, int]:
    """Fork one process that works until no ticket is left; return where its answers come from, and its number."""
    reader, writer = Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: theirs are idle, and Arrow begins anew in a fork
        pid = os.fork()
    if pid:
        writer.close()
        return reader, pid
    gc.disable()  # what was read before would be looked through for garbage again and again: a quarter of the time figures take
    try:
        while ticket := os.read(tickets, TICKET_BYTES):
            number = int.from_bytes(ticket, "big")
            with suppress(Exception):
                writer.send((number, work(things[number])))
    finally:
        os._exit(0)  # nothing of the parent's is flushed or torn down here
