"""Do something inside a host's network namespace, from this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.processes import check, libc

_CLONE_NEWNET = 0x40000000


@contextmanager
def network_namespace(pid: int | None) -> Iterator[None]:
    """Move this thread into the network namespace of a process; None stays. Sockets opened inside stay in it."""
    if pid is None:
        yield
        return
    away = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with joined(away):
            yield
    finally:
        os.close(away)


@contextmanager
def joined(namespace: int) -> Iterator[None]:
    """Move this thread into a network namespace, given by a descriptor."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        check(libc.setns(namespace, _CLONE_NEWNET), "join a host's network")
        yield
    finally:
        check(libc.setns(home, _CLONE_NEWNET), "return to the sandbox's network")
        os.close(home)
