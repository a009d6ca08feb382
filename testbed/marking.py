"""Leave no run that was stopped from outside without a mark in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import disk
from testbed.errors import DiskFull, Interrupted
from testbed.record import RunFolder

CUT_SHORT = (Interrupted, KeyboardInterrupt, DiskFull)  # what is raised on, the run marked


@contextmanager
def marked(record: RunFolder, folder: Path, interrupted: str = "interrupted by the user") -> Iterator[None]:
    """Mark the run as cut short where the block is interrupted or finds the disk full, and raise it on; other faults are the caller's."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        record.fail(interrupted, "the run was interrupted", cut_short=True)
        raise
    except BaseException as error:
        if disk.is_full(error, folder):
            record.fail("the disk was full", "the disk was full", cut_short=True)
            raise disk.full(folder) from error
        raise
