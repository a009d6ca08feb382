"""What this machine is and can do: what is installed, which datapath, and its measured ceiling (kept between runs)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.processes import die_with_parent
from testbed.record import read_json, write_json

TOOLS = {
    "mnexec": "mininet",
    "ovs-vswitchd": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
}
TRIAL_TIMEOUT_S = 120
LARGE_FRAMES_ABOVE = 4000  # an MTU above this is judged by the ceiling of 9000, below it by that of 1500
CEILING_RATES_BPS = {1500: [25e6, 50e6, 75e6, 100e6, 150e6, 200e6, 400e6, 1e9], 9000: [100e6, 200e6, 300e6, 400e6, 600e6, 1e9, 2e9]}
CEILING_TRIES = 2  # a busy moment is no ceiling
PATIENT_TRIES = 8  # at the lowest rate, which every machine carries when it has time, and while the host takes the processors away
PAUSE_S = 3.0  # before another try: installing, for one, keeps a machine busy for a while afterwards
MOST_STOLEN = 0.01
HALVINGS = 2  # of the gap between the last rate that was carried and the first that was not
RING_TRAVERSALS = 6  # switches crossed by a ring of four workers on a dumbbell, in sum
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class MachineError(RuntimeError):
    """This machine cannot run emulations as it is; the message says what to do."""


def require_emulation() -> None:
    """Raise unless this process may and can emulate networks; the message has every lack."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("emulated networks need root: run it with sudo (`make experiment` does so by itself)")
    missing = missing_packages()
    if missing:
        lacks.append(f"{', '.join(missing)} not installed: run `make setup`, or apt-get install {' '.join(missing)}")
    if lacks:
        raise MachineError("\n".join(lacks))


def missing_packages() -> list[str]:
    """Return the Debian packages whose tools are not on this machine."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    return sorted({package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None})


def has_kernel_datapath() -> bool:
    """Tell whether the kernel has Open vSwitch's datapath, loading its module if it can be."""
    if not Path("/sys/module/openvswitch").exists():
        modprobe = shutil.which("modprobe", path=SYSTEM_PATH)
        if modprobe is not None:
            subprocess.run([modprobe, "-q", "openvswitch"], capture_output=True)
    return Path("/sys/module/openvswitch").exists()


def trial(what: str, kernel_datapath: bool) -> Any:
    """Run one trial of `testbed.emulation.trial` in a sandbox and return its result."""
    command = [sys.executable, "-m", "testbed.emulation.trial", what, "kernel" if kernel_datapath else "user"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_TIMEOUT_S, preexec_fn=die_with_parent)
    except subprocess.TimeoutExpired:
        raise MachineError(f"the trial of this machine's {what} did not end within {TRIAL_TIMEOUT_S} s") from None
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise MachineError(f"the trial of this machine's {what} failed: {done.stderr.strip()[-500:]}") from None
    if "error" in answer:
        raise MachineError(f"the trial of this machine's {what} failed: {answer['error']}")
    return answer["result"]


def ceiling_bps(mtu: int, kernel_datapath: bool, measuring: Callable[[str], None] = lambda text: None, anew: bool = False) -> float:
    """Return the most switch traffic this machine carries faithfully at an MTU, measured once and kept; `anew`, once more.

    The bottleneck's rate is raised until it is no longer delivered; the ceiling is what the whole ring then asked of the switches. Of two
    measurements the higher counts: what a machine has carried it can carry, and a lower one was of a busy moment.
    """
    size = 9000 if mtu > LARGE_FRAMES_ABOVE else 1500
    datapath = "kernel" if kernel_datapath else "user"
    identity = {"kernel": platform.release(), "cpus": os.cpu_count(), "cpu": _cpu_model(), "datapath": datapath}
    path = _cache_path()
    kept = read_json(path) or {}
    if kept.get("identity") != identity:
        kept = {"identity": identity, "ceiling_bps": {}}
    known_bps = kept["ceiling_bps"].get(str(size), 0.0)
    if anew or not known_bps:
        measuring(f"measuring what this machine carries at MTU {size}, once{' more' * bool(known_bps)}: about half a minute")
        kept["ceiling_bps"][str(size)] = max(known_bps, _measure_ceiling_bps(size, kernel_datapath))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, kept)
    return float(kept["ceiling_bps"][str(size)])


def _measure_ceiling_bps(mtu: int, kernel_datapath: bool) -> float:
    most_bps, too_much_bps = 0.0, 0.0
    for rate_bps in CEILING_RATES_BPS[mtu]:
        seen = _try_to_carry(rate_bps, mtu, kernel_datapath, CEILING_TRIES if most_bps else PATIENT_TRIES)
        if not seen["carried"]:
            too_much_bps = rate_bps
            break
        most_bps = rate_bps
    if most_bps == 0:
        delivered = "nothing that could be judged" if seen["delivered"] is None else f"{seen['delivered']:.1%}"
        raise MachineError(
            f"this machine was too busy to measure what it carries at MTU {mtu}: of {rate_bps / 1e6:.0f} Mbit/s it delivered {delivered}, "
            f"with queues filled {seen['coverage']:.0%} of the time and {seen['stolen']:.0%} of its processors taken by its host; "
            "stop other work, here or on the host, and run again"
        )
    for _ in range(HALVINGS if too_much_bps else 0):
        middle_bps = (most_bps + too_much_bps) / 2
        if _try_to_carry(middle_bps, mtu, kernel_datapath, CEILING_TRIES)["carried"]:
            most_bps = middle_bps
        else:
            too_much_bps = middle_bps
    return most_bps * RING_TRAVERSALS


def _try_to_carry(rate_bps: float, mtu: int, kernel_datapath: bool, tries: int) -> dict[str, Any]:
    """Try a rate until it is carried; a failure while the host took the processors away is not the rate's."""
    failures = 0
    for tried in range(PATIENT_TRIES):
        time.sleep(PAUSE_S if tried else 0.0)
        seen: dict[str, Any] = trial(f"{mtu}@{rate_bps:.0f}", kernel_datapath)
        failures += not seen["carried"] and seen["stolen"] <= MOST_STOLEN
        if seen["carried"] or failures >= tries:
            break
    return seen


def forget_ceiling() -> None:
    """Forget the measured ceiling, so that it is measured again."""
    _cache_path().unlink(missing_ok=True)


def congestion_controls() -> list[str]:
    """Return the congestion controls this kernel has."""
    path = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    return path.read_text().split() if path.exists() else []


def versions() -> dict[str, str]:
    """Return the versions that may matter to a number."""
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "mininet", "numba", "pandas"):
        found[name] = importlib.metadata.version(name)
    ovs = shutil.which("ovs-vswitchd", path=SYSTEM_PATH)
    if ovs is not None:
        found["openvswitch"] = subprocess.run([ovs, "--version"], capture_output=True, text=True).stdout.split("\n")[0].split()[-1]
    return found


def git_commit() -> str | None:
    """Return the commit of the code that runs, with `-dirty` when files were changed."""
    git = shutil.which("git")
    if git is None:
        return None
    folder = Path(__file__).resolve().parent
    # Under sudo the tree belongs to another user, which git refuses unless told.
    command = [git, "-c", "safe.directory=*", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _cache_path() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "netsense-testbed" / "machine.json"
