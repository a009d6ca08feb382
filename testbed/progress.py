"""Show a run while it goes on: two live lines in a terminal, plain lines elsewhere. Reads only what the run records."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from testbed.forecast import Duration
from testbed.record import itself

PLAIN_INTERVAL_S = 10.0
RATE_WINDOW_S = 5.0
TAIL_BYTES = 8192


@dataclass(frozen=True)
class RunState:
    """What can be said of a run right now."""

    step: int
    train_s: float
    samples_per_s: float | None
    ratio: float | None
    backlog_bytes: int | None
    left_s: float | None


class Watcher:
    """Follows a run's JSON lines."""

    def __init__(self, stream: Path, workers: int, budget: dict[str, Any], dilation: float = 1.0) -> None:
        """`budget` has seconds, steps or both, as in a job; all is told in the experiment's time, but for how long it will yet take."""
        self._dilation = dilation
        self._steps = stream / "steps-0.jsonl"
        self._links = stream / "links.jsonl"
        self._workers = workers
        self._budget = budget
        self._recent: deque[tuple[float, int]] = deque()

    def state(self) -> RunState | None:
        """Return the present state; None before the first measured step."""
        row = _last_row(self._steps)
        if row is None:
            return None
        self._recent.append((row["train_s"], row["step"]))
        while row["train_s"] - self._recent[0][0] > RATE_WINDOW_S:
            self._recent.popleft()
        seconds, steps = row["train_s"] - self._recent[0][0], row["step"] - self._recent[0][1]
        speed = steps * row["samples"] * self._workers / seconds if seconds > 0 else None
        return RunState(row["step"], row["train_s"], speed, row["ratio"], self._backlog(), self._left_s(row))

    def _left_s(self, row: dict[str, Any]) -> float | None:
        left = []
        if self._budget.get("seconds") is not None:
            left.append(self._budget["seconds"] - row["train_s"])
        if self._budget.get("steps") is not None:
            left.append((self._budget["steps"] - row["step"] - 1) * row["train_s"] / (row["step"] + 1))
        return max(0.0, min(left)) * self._dilation if left else None

    def _backlog(self) -> int | None:
        rows = [row for row in _tail(self._links) if row["link"] == "bottleneck"] or _tail(self._links)
        return max((row["backlog_bytes"] for row in rows[-4:]), default=None)


class Progress:
    """Prints the experiment's progress."""

    def __init__(self, console: Console, total_runs: int) -> None:
        """Start with no run under way."""
        self._console = console
        self._total = total_runs
        self._number = 0
        self._label = ""
        self._this, self._after = Duration(), Duration()
        self._live: Live | None = None
        self._printed_at = 0.0

    def expect(self, this: Duration, after: Duration) -> None:
        """Note how long the next run and those after it are expected to take."""
        self._this, self._after = this, after

    def begin(self, number: int, label: str) -> None:
        """Run `number` of the experiment begins (again)."""
        self._number = number
        self._label = label
        self._printed_at = time.monotonic()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            self.stage("starting")
        else:
            self._console.print(self._line(_joined("starting", self._all_left(self._this))), soft_wrap=True)

    def pass_over(self, number: int, label: str, text: str, style: str = "") -> None:
        """Run `number` is not to be done now."""
        self._number, self._label = number, label
        self.end(text, style)

    def stage(self, text: str) -> None:
        """Tell what the run is doing before its first step."""
        if self._live is not None:
            self._live.update(self._two_lines(text, self._this), refresh=True)

    def update(self, state: RunState | None) -> None:
        """Show the state."""
        if state is None:
            return
        parts = [f"step {state.step}", f"{state.train_s:.1f} s"]
        parts += [f"{state.samples_per_s:.1f} samples/s"] if state.samples_per_s is not None else []
        parts += [f"ratio {state.ratio:.3g}"] if state.ratio is not None else []
        parts += [f"backlog {state.backlog_bytes / 1e3:.1f} kB"] if state.backlog_bytes is not None else []
        left = Duration(unknown_runs=1) if state.left_s is None else Duration(state.left_s)
        seconds = [] if state.left_s is None else [f"{state.left_s:.0f} s left"]
        if self._live is not None:
            self._live.update(self._two_lines("".join(seconds) or "training", left, parts), refresh=True)
        elif time.monotonic() - self._printed_at >= PLAIN_INTERVAL_S:
            self._console.print(self._line(_joined(*parts, *seconds, self._all_left(left))), soft_wrap=True)
            self._printed_at = time.monotonic()

    def end(self, text: str, style: str = "") -> None:
        """A run has ended."""
        self.close()
        self._console.print(self._line(text, style), soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _all_left(self, this: Duration) -> str:
        """Say how long all will take, if more than one run is to come."""
        return f"(all: {(this + self._after).words()} left)" if self._after != Duration() else ""

    def _two_lines(self, text: str, this: Duration, details: Sequence[str] = ()) -> Text:
        """Return the run and how it stands, and below it what matters less: a narrow terminal cuts that off, and wraps nothing."""
        lines = Text.assemble(self._line(text), "\n", (f"  {_joined(self._all_left(this), *details)}", "dim"))
        lines.no_wrap, lines.overflow = True, "ellipsis"
        return lines

    def _line(self, text: str, style: str = "") -> Text:
        return Text.assemble((f"[{self._number}/{self._total}] ", "dim"), (f"{self._label:24s} ", "bold"), (text, style))


def _joined(*parts: str) -> str:
    return "  ".join(part for part in parts if part)


def _tail(path: Path) -> list[dict[str, Any]]:
    """Return the whole rows within a file's last few kilobytes."""
    try:
        with open(path, "rb", opener=itself) as file:  # workers choose what has this name
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            chunk = file.read()
    except OSError:
        return []
    rows = []
    for line in chunk.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _last_row(path: Path) -> dict[str, Any] | None:
    rows = _tail(path)
    return rows[-1] if rows else None
