"""Tie processes together so that none outlives the one the user started.

`kill -9` reaches only one process; the kernel's parent-death signal passes it down each link of our own chain, and
`die_with_launchers` covers the links that are not ours (make, sudo, sh -c).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LAUNCHERS = {"make", "gmake", "sudo", "doas", "env", "timeout", "setpriv"}
_SHELLS = {"sh", "dash", "bash", "ash", "zsh"}
_OPTIONS_WITH_FILE = {"--rcfile", "--init-file"}

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Raise OSError naming what failed when a libc call returned -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent's thread ends (call it first thing after fork or exec)."""
    check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl(PR_SET_PDEATHSIG)")


def this_process() -> dict[str, int | str]:
    """Identify this process so that it cannot be taken for a later one with the same number."""
    return {"pid": os.getpid(), "started": _started(os.getpid()) or 0, "boot": _boot(), "pid_namespace": _pid_namespace()}


def is_running(process: dict[str, Any]) -> bool:
    """Tell whether a process identified by `this_process` still runs, as far as it can be seen from here."""
    started = None if _is_elsewhere(process) else _started(int(process.get("pid", 0)))
    return started is not None and process.get("boot") == _boot() and process.get("started") == started


def may_run(process: dict[str, Any]) -> bool:
    """Tell whether a process runs, or is of another PID namespace (a container's, or the machine's), whose numbers mean nothing here."""
    return is_running(process) or (_is_elsewhere(process) and process.get("boot") == _boot())


def _is_elsewhere(process: dict[str, Any]) -> bool:
    return bool(process.get("pid_namespace", _pid_namespace()) != _pid_namespace())


def _started(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])  # a zombie has ended, only nobody has asked for it
    except (OSError, ValueError, IndexError):
        return None


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def ancestors(pid: int) -> list[tuple[int, str, list[str]]]:
    """Return (pid, command name, arguments) of the parent, its parent and so on."""
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, ValueError, IndexError):
            break
        found.append((pid, name, arguments))
    return found


def launchers(chain: list[tuple[int, str, list[str]]]) -> list[int]:
    """Return the ancestors that merely launched us: make, sudo, `sh -c`; a login or interactive shell is not one."""
    pids = []
    for pid, name, arguments in chain:
        if name not in _LAUNCHERS and not (name in _SHELLS and _runs_command(arguments)):
            break
        pids.append(pid)
    return pids


def _runs_command(arguments: list[str]) -> bool:
    """Tell whether a shell was given `-c`, alone or among other letters, before its first operand."""
    rest = iter(arguments[1:])
    for option in rest:
        if option.startswith("--"):
            if option == "--":
                return False
            if option in _OPTIONS_WITH_FILE:
                next(rest, None)
        elif option.startswith(("-", "+")) and len(option) > 1:
            if option[0] == "-" and "c" in option:
                return True
            for _ in range(option.count("o") + option.count("O")):  # `-o pipefail`: the name is an argument of its own
                next(rest, None)
        else:
            return False
    return False


def die_with_launchers() -> None:
    """End this process by SIGKILL as soon as one of its launchers has ended."""
    descriptors = []
    for pid in launchers(ancestors(os.getpid())):
        try:
            descriptors.append(os.pidfd_open(pid))
        except OSError:
            continue
    if not descriptors:
        return

    def watch() -> None:
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        poll.poll()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
