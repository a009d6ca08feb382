"""Limits on how much of the processors each worker may use, by control groups of the run's own.

A run has one folder of groups, named after the process that runs it, with a group in it for each limited worker. A janitor removes them: a
shell that waits until the runner lets go of its input or is gone, by whatever end, and then until the groups are empty. What even that
left behind `reap` removes, at the next run with limits or by `testbed clean`; nobody else's groups are touched.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.processes import is_running, this_process

PREFIX = "netsense-testbed"
_NUMBERS = itertools.count()  # no run waits for the groups of the one before
MOUNTS = Path("/proc/self/mountinfo")
PERIOD_S = 0.1  # over which a worker's share is counted, of the experiment's time
LONGEST_PERIOD_S = 1.0  # that the kernel takes
JANITOR_S = 10  # after which it gives up
REMEDY = "leave cpus out, or make stragglers by slowdown, which needs no control groups"
_JANITOR = 'folder=$1; shift; cat > /dev/null; for i in $(seq {}); do rmdir "$@" "$folder"; [ -d "$folder" ] || exit; sleep 0.1; done'


class CpuLimitError(RuntimeError):
    """Processors cannot be limited here; the message has the remedy."""


@dataclass(frozen=True)
class Tree:
    """Where the machine's CPU groups are, and in which of the kernel's two ways."""

    root: Path
    version: int

    def limit(self, group: Path, cpus: float, dilation: float) -> None:
        """Let the processes of a group use so many processors in the experiment's time."""
        quota_us, period_us = quota_and_period_us(cpus, dilation)
        if self.version == 2:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))

    def throttled_s(self, group: Path) -> float:
        """Return how long the processes of a group were held back, summed over processors, in the machine's time."""
        fields = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        return int(fields["throttled_usec"]) / 1e6 if self.version == 2 else int(fields["throttled_time"]) / 1e9


def quota_and_period_us(cpus: float, dilation: float) -> tuple[int, int]:
    """Return for how long in which time the kernel lets a group run that may use so many processors in the experiment's time."""
    period_s = min(LONGEST_PERIOD_S, PERIOD_S * dilation)
    return round(cpus / dilation * period_s * 1e6), round(period_s * 1e6)


def tree(mounts: Path = MOUNTS) -> Tree:
    """Find the machine's CPU groups; CpuLimitError if there are none that can be used."""
    unified = None
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        place, (kind, _, options) = Path(before.split()[4]), after.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            return Tree(place, 1)
        if kind == "cgroup2":
            unified = place
    if unified is None or "cpu" not in _words(unified / "cgroup.controllers"):
        raise CpuLimitError(f"this kernel, or the container we are in, has no control groups for CPU: {REMEDY}")
    if "cpu" not in _words(unified / "cgroup.subtree_control"):
        enable = f"echo +cpu > {unified}/cgroup.subtree_control"
        raise CpuLimitError(f"CPU groups are not switched on here: as root `{enable}` does so; or {REMEDY}")
    return Tree(unified, 2)


def require() -> None:
    """Raise CpuLimitError unless processors can be limited here; tries it."""
    try:
        with CpuGroups([1.0], 1.0):
            pass
    except OSError as error:
        raise CpuLimitError(f"control groups for CPU cannot be made here ({error}): {REMEDY}") from error


def problems(limits: Iterable[float | None]) -> list[str]:
    """Say what speaks against these limits here, if any are asked for."""
    if any(limits) and os.geteuid() == 0:  # that root is needed is told anyhow
        try:
            require()
        except CpuLimitError as error:
            return [f"cpus: {error}"]
    return []


class CpuGroups:
    """A run's groups, from the beginning of a `with` block to its end."""

    def __init__(self, limits: Sequence[float | None], dilation: float, mounts: Path = MOUNTS) -> None:
        """Prepare a group for each worker that has a limit; None has none."""
        self._limits, self._dilation = limits, dilation
        self._tree = tree(mounts) if any(limits) else None
        me = this_process()
        self._folder = (self._tree.root if self._tree else Path()) / f"{PREFIX}-{me['pid']}-{me['started']}-{next(_NUMBERS)}"
        self.paths = [None if cpus is None else str(self._folder / f"worker-{rank}") for rank, cpus in enumerate(limits)]
        self._janitor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> CpuGroups:
        if self._tree is None:
            return self
        for _ in reap(self._tree):
            pass
        groups = [Path(path) for path in self.paths if path is not None]
        command = ["sh", "-c", _JANITOR.format(10 * JANITOR_S), "janitor", str(self._folder), *map(str, groups)]
        # In a session of its own: no signal meant for us reaches it.
        self._janitor = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            self._folder.mkdir()
            if self._tree.version == 2:
                (self._folder / "cgroup.subtree_control").write_text("+cpu")
            for group, cpus in zip(groups, (cpus for cpus in self._limits if cpus is not None), strict=True):
                group.mkdir()
                self._tree.limit(group, cpus, self._dilation)
        except OSError:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def report(self) -> list[dict[str, Any]]:
        """Tell each limit, and how long it held its worker back."""
        told = []
        for rank, (cpus, path) in enumerate(zip(self._limits, self.paths, strict=True)):
            if self._tree is not None and path is not None:
                told.append({"worker": rank, "cpus": cpus, "throttled_s": self._tree.throttled_s(Path(path))})
        return told

    def close(self) -> None:
        """Have the groups removed, which takes until their last process is gone."""
        if self._janitor is not None:
            assert self._janitor.stdin is not None
            self._janitor.stdin.close()
            self._janitor.wait()
            self._janitor = None


def reap(groups: Tree | None = None) -> Iterator[str]:
    """Remove the groups of runs that are gone, if any are left; yield a sentence for each."""
    if groups is None:
        try:
            groups = tree()
        except (CpuLimitError, OSError):
            return
    for folder in sorted(groups.root.glob(f"{PREFIX}-*")):
        name = re.fullmatch(rf"{PREFIX}-(\d+)-(\d+)-\d+", folder.name)
        if name is None or is_running({**this_process(), "pid": int(name[1]), "started": int(name[2])}):
            continue
        with suppress(OSError):  # not empty yet, or not ours to remove
            for group in [*folder.glob("worker-*"), folder]:
                group.rmdir()
            yield f"{folder}: removed, the run it limited was killed"


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
