"""Tidy up after killed runs. The kernel has removed their processes, interfaces and mounts already; what can be left is in the results.

And, if more than the run was killed, its control groups and containers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.containers import removal
from testbed.emulation import cpulimits
from testbed.processes import is_running
from testbed.record import read_json, write_json


def clean(results: Path) -> Iterator[str]:
    """Mark runs that were killed as failed and remove half-written files; yield a sentence for each."""
    for path in sorted(results.glob("*/*/manifest.json")):
        manifest = read_json(path)
        if manifest is None or manifest.get("status") != "running" or is_running(manifest.get("runner", {})):
            continue
        manifest.update(status="failed", reason="killed before it ended", invalid_reasons=["the run was killed"], cut_short=True)
        write_json(path, manifest)
        yield f"{path.parent}: marked as failed, it was killed before it ended; what it recorded is in its stream folder"
        for leftover in sorted(path.parent.glob(".*.new")):
            leftover.unlink()
            yield f"{leftover}: removed, half written"
        for name in ("api.sock", "board.bin"):  # of no use to anybody now
            (path.parent / "stream" / name).unlink(missing_ok=True)
    yield from cpulimits.reap()
    yield from removal.reap()
