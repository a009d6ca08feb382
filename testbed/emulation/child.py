"""A helper process that speaks JSON lines over its standard input and output."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.processes import die_with_parent

Message = dict[str, Any]


class JsonLines:
    """JSON lines from a descriptor, read as they come."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.ended = False
        self._pending = b""

    def read(self, timeout_s: float) -> list[Message]:
        """Return the messages that arrive within the time, possibly none; `ended` tells that nothing more will come."""
        if self.ended or not select.select([self.descriptor], [], [], timeout_s)[0]:
            return []
        chunk = os.read(self.descriptor, 1 << 16)
        self.ended = not chunk
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        return [json.loads(line) for line in lines]


class ChildEnded(RuntimeError):
    """A helper that is gone."""


class Child:
    """One helper process; it ends when its input closes or its parent dies."""

    def __init__(self, module: str, log: Path) -> None:
        """Start `python -m module`, its errors going to the log."""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=die_with_parent,
            )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self.module = module
        self.lines = JsonLines(self._process.stdout.fileno())

    def tell(self, message: Message) -> None:
        """Send one line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise ChildEnded(f"{self.module} ended with code {self._process.wait()}") from error

    def hear(self, timeout_s: float) -> list[Message]:
        """Return the messages that arrive within the time, possibly none."""
        messages = self.lines.read(timeout_s)
        if self.lines.ended:
            raise ChildEnded(f"{self.module} ended with code {self._process.wait()}")
        return messages

    def wait_for(self, event: str, timeout_s: float) -> Message:
        """Return the first message of the given kind; others before it are dropped, an error is raised."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            for message in self.hear(left_s):
                if message["event"] == event:
                    return message
                if message["event"] == "error":
                    raise RuntimeError(message["text"])
        raise RuntimeError(f"{self.module} was not {event} within {timeout_s:.0f} s")

    def stop(self) -> None:
        """Close its input and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def wait_for_any(lines: Sequence[JsonLines], timeout_s: float) -> None:
    """Wait until one of them has something to read, or the time is over."""
    select.select([one.descriptor for one in lines if not one.ended], [], [], max(0.0, timeout_s))
