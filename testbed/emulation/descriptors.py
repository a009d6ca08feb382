"""Sockets that belong to other processes, taken as duplicates: what is set on one holds for the socket itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from testbed.processes import libc

_SYS_PIDFD_GETFD = 438


def sockets_of(pid: int) -> Iterator[socket.socket]:
    """Yield a duplicate of every socket of a process, to be closed by the caller; a process that has ended has none."""
    try:
        own = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if not os.readlink(entry).startswith("socket:"):
                    continue
            except OSError:
                continue
            descriptor = libc.syscall(_SYS_PIDFD_GETFD, own, int(entry.name), 0)
            if descriptor >= 0:
                yield socket.socket(fileno=descriptor)
    finally:
        os.close(own)
