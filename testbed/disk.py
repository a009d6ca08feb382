"""Tell a full disk from other faults, in whatever process it was met."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import DiskFull

FULL = {errno.ENOSPC, errno.EDQUOT}
SAID = tuple(os.strerror(number) for number in FULL)  # by workers and the sandbox, in the last lines of their logs
LEAST_FREE_BYTES = 1 << 20  # with less than this, a record that lacks something was cut off


def is_full(error: BaseException, folder: Path) -> bool:
    """Tell whether a fault comes from a full disk: by its number, its words, or those of what caused it, or by what is free."""
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, OSError) and chain.errno in FULL:
            return True
        if any(words in str(chain) for words in SAID):
            return True
        chain = chain.__cause__ or chain.__context__
    return free_bytes(folder) < LEAST_FREE_BYTES


def free_bytes(folder: Path) -> int:
    """Return what is free where the folder is, or will be."""
    return shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if path.exists())).free


def full(folder: Path) -> DiskFull:
    """Return the exception that says so."""
    return DiskFull(
        f"the disk of {folder} is full ({free_bytes(folder) / 1e6:.1f} MB free): free some space and give the same command again; "
        "the runs that were finished are whole"
    )


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Turn a full disk, met anywhere inside the block, into DiskFull."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise full(folder) from error
        raise
