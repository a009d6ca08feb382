"""Tidy up after killed runs. The kernel has removed their processes, interfaces and mounts already; what can be left is in the results.

And, if more than the run was killed, its control groups and containers; of a run that was killed while it made its containers, those
that were made and never started. What another PID namespace runs (a container's testbed, or the machine's) is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.containers import removal
from testbed.emulation import cpulimits
from testbed.processes import may_run
from testbed.record import read_json, write_json


def clean(results: Path) -> Iterator[str]:
    """Mark runs that were killed as failed and remove half-written files; yield a sentence for each.

    EngineError, last of all, if there may be containers and they cannot be looked at.
    """
    for path in sorted(results.glob("*/*/manifest.json")):
        manifest = read_json(path)
        if manifest is None or manifest.get("status") != "running" or may_run(manifest.get("runner") or {}):
            continue
        manifest.update(status="failed", reason="killed before it ended", invalid_reasons=["the run was killed"], cut_short=True)
        write_json(path, manifest)
        yield f"{path.parent}: marked as failed, it was killed before it ended; what it recorded is in its stream folder"
        for leftover in sorted(path.parent.glob(".*.new")):
            leftover.unlink()
            yield f"{leftover}: removed, half written"
        for name in ("api.sock", "stream/api.sock", "stream/board.bin"):  # of no use to anybody now
            (path.parent / name).unlink(missing_ok=True)
    yield from cpulimits.reap()
    yield from removal.reap()
