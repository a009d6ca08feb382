"""What a worker writes while it runs: JSON lines in the run's stream folder, flushed line by line."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any


class Stream:
    """Append rows to the stream files of one worker."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rank = folder, rank
        self._steps = (folder / f"steps-{rank}.jsonl").open("a")
        self._events = (folder / f"events-{rank}.jsonl").open("a")
        self._evals = (folder / "evals.jsonl").open("a") if rank == 0 else None

    def step(self, row: dict[str, Any]) -> None:
        """Record a measured step."""
        _append(self._steps, row)

    def evaluation(self, row: dict[str, Any]) -> None:
        """Record an evaluation; only rank 0's is written."""
        if self._evals is not None:
            _append(self._evals, row)

    def event(self, kind: str, text: str, **data: Any) -> None:
        """Record something notable, now."""
        _append(self._events, {"mono_s": time.monotonic(), "kind": kind, "text": text, "data": data})

    def result(self, row: dict[str, Any]) -> None:
        """Write the worker's result, whole or not at all."""
        path = self._folder / f"worker-{self._rank}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(row, indent=1) + "\n")
        os.replace(temporary, path)

    def close(self) -> None:
        """Close the files."""
        for file in (self._steps, self._events, self._evals):
            if file is not None:
                file.close()


def _append(file: Any, row: dict[str, Any]) -> None:
    # NaN and infinity are not JSON; null says "no number"
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    file.write(json.dumps(clean, separators=(",", ":")) + "\n")
    file.flush()


class WireCounters:
    """Read an interface's byte counters; sysfs may show another namespace's, /proc/self/net shows ours."""

    def __init__(self, interface: str) -> None:
        self._name = interface.encode()
        self._file = os.open("/proc/self/net/dev", os.O_RDONLY) if interface else -1

    def read(self) -> tuple[int | None, int | None]:
        """Return bytes sent and received since the interface was made, or nothing without an interface."""
        if self._file < 0:
            return None, None
        for line in os.pread(self._file, 1 << 16, 0).splitlines():
            name, _, counters = line.partition(b":")
            if name.strip() == self._name:
                fields = counters.split()
                return int(fields[8]), int(fields[0])
        raise OSError(f"interface {self._name.decode()} is not in this network namespace")
