"""How the controller process speaks: JSON lines on standard output; and how it fails: loudly, at once and as a whole.

os-ken swallows what goes wrong in its threads and goes on deaf. So every handler and every thread body is `guarded`, and an error that
os-ken merely logs counts as a fault too: the process ends with code 1, and whoever watches it starts another one.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_one_line_at_a_time = threading.Lock()


class Report(Protocol):
    """Where messages go."""

    def __call__(self, *, event: str, **message: object) -> None:
        """Send one."""
        ...


def report(**message: Any) -> None:
    """Tell the parent process, by one JSON line."""
    line = json.dumps(message).encode() + b"\n"
    with _one_line_at_a_time:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def fail(error: BaseException) -> NoReturn:
    """Log the error with its traceback, report it and end the process."""
    traceback.print_exception(error, file=sys.stderr)
    with suppress(OSError):  # nobody listens any more
        report(event="error", text=f"{type(error).__name__}: {error}")
    sys.stderr.flush()
    os._exit(1)


def guarded(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let an exception in the function end the process."""

    @functools.wraps(function)
    def run(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **named)
        except BaseException as error:
            fail(error)

    return run


class _LoggedError(RuntimeError):
    """What a library only logged as an error."""


class _Fault(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        fail(_LoggedError(record.getMessage()))


def start_logging() -> None:
    """Send warnings to standard error, and take every logged error for a fault."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger().addHandler(_Fault(logging.ERROR))
