"""What the emulation cost and lost, in one snapshot: CPU time, waiting for a CPU, drops, retransmissions.

Counters only: two snapshots are subtracted by `validity`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_TCP_COUNTERS = ("RetransSegs",)
_TCPEXT_COUNTERS = ("TCPLossProbes", "TCPDSACKRecv", "TCPDSACKOfoRecv", "TCPDSACKRecvSegs")


def snapshot(
    processes: Mapping[str, Iterable[Path]],
    host_pids: Iterable[int],
    switch_ports: Iterable[str],
    socket_drops: int,
    delay: dict[str, Any] | None,
) -> dict[str, Any]:
    """Read every counter now. `processes` maps a role (vswitchd, workers...) to its processes' folders in /proc."""
    cpu: dict[str, float] = {}
    waited: dict[str, float] = {}
    for role, folders_of_role in processes.items():
        totals = [_schedstat(folder) for folder in folders_of_role]
        cpu[role] = sum(ran for ran, _ in totals)
        waited[role] = sum(wait for _, wait in totals)
    busy_s, steal_s = machine_cpu()
    return {
        "mono_s": time.monotonic(),
        "cpu_s": cpu,
        "waited_s": waited,
        "machine_busy_s": busy_s,
        "machine_steal_s": steal_s,
        "softnet_drops": _softnet_drops(),
        "socket_drops": socket_drops,
        "switch_lost": switch_lost(switch_ports),
        "tcp": _tcp(host_pids),
        "delay": delay,
    }


def folders(*pids: int) -> list[Path]:
    """Return where /proc tells of processes."""
    return [Path(f"/proc/{pid}") for pid in pids]


def _schedstat(process: Path) -> tuple[float, float]:
    """Return the seconds a process's threads ran, and waited while runnable."""
    ran = waited = 0
    try:
        for task in (process / "task").iterdir():
            fields = (task / "schedstat").read_text().split()
            ran += int(fields[0])
            waited += int(fields[1])
    except OSError:  # it has ended
        pass
    return ran / 1e9, waited / 1e9


def machine_cpu() -> tuple[float, float]:
    """Return the seconds all processors were busy, and those that a virtual machine's host took away from them."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq) * _TICK_S, steal * _TICK_S


class Stolen:
    """What a virtual machine's host takes of its processors from now on."""

    def __init__(self) -> None:
        """Begin."""
        self._began_s, self._before_s = time.monotonic(), machine_cpu()[1]

    def share(self) -> float:
        """Return how much of them it has taken, as a share of all their time."""
        return (machine_cpu()[1] - self._before_s) / (time.monotonic() - self._began_s) / (os.cpu_count() or 1)


def _softnet_drops() -> int:
    return sum(int(line.split()[1], 16) for line in Path("/proc/net/softnet_stat").read_text().splitlines())


def _tcp(host_pids: Iterable[int]) -> dict[str, int]:
    totals = dict.fromkeys((*_TCP_COUNTERS, *_TCPEXT_COUNTERS), 0)
    for pid in host_pids:
        for name in ("snmp", "netstat"):
            try:
                lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
            except OSError:
                continue
            for titles, values in zip(lines[::2], lines[1::2], strict=False):
                for title, value in zip(titles.split(), values.split(), strict=False):
                    if title in totals and titles.startswith(("Tcp:", "TcpExt:")):
                        totals[title] += int(value)
    return totals


def switch_lost(ports: Iterable[str]) -> int:
    """Return how many frames have gone into the switches and not come out (those still queued included).

    Open vSwitch sends frames in batches and gives up a batch at the first one that a full queue refuses; the queue counts that one,
    and nobody the rest. In and out do not lie.
    """
    wanted = set(ports)
    lost = 0
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, values = line.partition(":")
        if name.strip() in wanted:
            fields = values.split()
            lost += int(fields[1]) - int(fields[9])
    return lost
