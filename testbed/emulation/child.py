"""A helper process that speaks JSON lines over its standard input and output."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from testbed.emulation.fork import Fork
from testbed.processes import die_with_parent

Message = dict[str, Any]

TELL_TIMEOUT_S = 20.0  # a large job waits for its reader to have imported what it needs
STOP_TIMEOUT_S = 10.0


class JsonLines:
    """JSON lines from a descriptor, read as they come."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._pending = b""

    def read(self, timeout_s: float | None) -> list[Message]:
        """Return the messages that arrive within the time (None: whenever), possibly none; `ended` tells that nothing more will come."""
        if self.ended or not select.select([self.descriptor], [], [], timeout_s)[0]:
            return []
        try:
            chunk = os.read(self.descriptor, 1 << 16)
        except ConnectionResetError:  # whoever held the other end was killed
            chunk = b""
        self.ended = not chunk
        *lines, self._pending = (self._pending + self.unwrapped(chunk)).split(b"\n")
        return [json.loads(line) for line in lines]

    def unwrapped(self, chunk: bytes) -> bytes:
        """Return what of the bytes read belongs to the lines: all of it."""
        return chunk


class ChildEnded(RuntimeError):
    """A helper that is gone."""


class Child:
    """One helper process; it ends when its input closes or its parent dies."""

    def __init__(self, module: str, log: Path, work: Callable[[], None] | None = None) -> None:
        """Start `python -m module`, its errors going to the log; or fork it from here, to do what the module would, as `work`."""
        with log.open("ab") as errors:
            self._process = Fork(work, errors) if work else _started(module, errors)
        assert self._process.stdin is not None and self._process.stdout is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self.pid = self._process.pid
        self.module = module
        self.lines = JsonLines(self._process.stdout.fileno())
        self._unheard: list[Message] = []

    def tell(self, message: Message, timeout_s: float = TELL_TIMEOUT_S) -> None:
        """Send one line; a child that does not take it in time is killed, as half a line would be worse than none."""
        assert self._process.stdin is not None
        left = json.dumps(message).encode() + b"\n"
        descriptor, deadline = self._process.stdin.fileno(), time.monotonic() + timeout_s
        try:
            while left:
                if not select.select([], [descriptor], [], max(0.0, deadline - time.monotonic()))[1]:
                    self.kill()
                    raise ChildEnded(f"{self.module} did not listen for {timeout_s:.0f} s and was killed")
                left = left[os.write(descriptor, left) :]
        except BrokenPipeError as error:
            raise ChildEnded(self._how_it_ended()) from error

    def hear(self, timeout_s: float) -> list[Message]:
        """Return the messages that arrive within the time, possibly none."""
        if self._unheard:
            messages, self._unheard = self._unheard, []
            return messages
        messages = self.lines.read(timeout_s)
        if self.lines.ended:
            raise ChildEnded(self._how_it_ended())
        return messages

    def wait_for(self, event: str, timeout_s: float) -> Message:
        """Return the first message of the given kind; others before it are dropped, an error is raised."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            messages = self.hear(left_s)
            for number, message in enumerate(messages):
                if message["event"] == event:
                    self._unheard = messages[number + 1 :]
                    return message
                if message["event"] == "error":
                    raise RuntimeError(message["text"])
        raise RuntimeError(f"{self.module} was not {event} within {timeout_s:.0f} s")

    def require_alive(self) -> None:
        """Raise ChildEnded if it has ended."""
        if self._process.poll() is not None:
            raise ChildEnded(self._how_it_ended())

    def kill(self) -> None:
        """End it at once; what it said until then can still be heard."""
        self._process.send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """Close its input and wait for its end; ChildEnded if that was not an orderly one."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ChildEnded(f"{self.module} did not end within {STOP_TIMEOUT_S:.0f} s and was killed") from None
        if code != 0:
            raise ChildEnded(self._how_it_ended())

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        return f"{self.module} was killed by signal {-code}" if code < 0 else f"{self.module} ended with code {code}"


def _started(module: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=0,
        preexec_fn=die_with_parent,
    )


def wait_for_any(lines: Sequence[JsonLines], timeout_s: float) -> None:
    """Wait until one of them has something to read, or the time is over."""
    select.select([one.descriptor for one in lines if not one.ended], [], [], max(0.0, timeout_s))
