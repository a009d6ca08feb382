"""Turn the signals that ask a program to end into an exception, so that what it was at is marked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.errors import Interrupted


@contextmanager
def signals_raise() -> Iterator[None]:
    """Raise Interrupted, with the signal's name, wherever the block is when such a signal comes."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
