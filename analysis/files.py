"""Write a file so that it is always whole: a full disk or a kill leaves the one that was there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give the name of a file to write (of the same kind, by its ending), which takes the place of `path` at the end of the block."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.new{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
