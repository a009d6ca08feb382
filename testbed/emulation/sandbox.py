"""Namespaces of a run's own: when the process that entered them dies, everything made inside is gone.

`enter` returns in process 1 of a new PID namespace, with its own network, its own mounts and its own /proc. The
kernel kills every process of a PID namespace with its process 1, and a network namespace with its last process, so
`kill -9` of any link of the chain leaves no process, interface or mount.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from testbed.processes import check, die_with_parent, libc

PRIVATE_DIR = "/var/lib/openvswitch"  # a tmpfs of the run's own is mounted here; the package makes it, and no user keeps files in it

_CLONE_NEWNS = 0x00020000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000


def enter() -> int:
    """Move the rest of this program into a sandbox; the calling process stays behind only to wait for it.

    Return a descriptor of /proc as it is outside: processes of others, such as containers, are seen only there.
    """
    die_with_parent()
    outer_proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    check(libc.unshare(_CLONE_NEWNET | _CLONE_NEWNS), "unshare network and mounts (root is needed)")
    _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)
    _mount(b"tmpfs", PRIVATE_DIR.encode(), b"tmpfs", 0)
    check(libc.unshare(_CLONE_NEWPID), "unshare processes")
    parent_alive, keep_open = os.pipe()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), -code)
        sys.exit(code)
    os.close(keep_open)
    die_with_parent()
    if select.select([parent_alive], [], [], 0)[0]:  # its other end is closed: the parent died before we asked to die with it
        os._exit(1)
    _mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return outer_proc


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    check(libc.mount(source, target, kind, flags, None), f"mount {target.decode()}")
