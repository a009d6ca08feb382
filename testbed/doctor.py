"""Tell what this machine can do, and for each lack its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from testbed import machine
from testbed.containers import engine
from testbed.emulation import cpulimits
from testbed.lock import MachineLock
from workloads.datasets import DatasetError, check_dataset


@dataclass(frozen=True)
class Finding:
    """One thing examined."""

    name: str
    state: str  # ok, lacking (experiments cannot run), substituted or absent (they can)
    value: Any
    text: str
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def examine(measure: bool = True, tell: Callable[[str], None] = lambda text: None) -> Iterator[Finding]:
    """Yield the findings, the measured ones (root needed) last."""
    root = os.geteuid() == 0
    yield Finding(
        "system", "ok", platform.platform(), f"{os.cpu_count()} cores, kernel {platform.release()}, Python {platform.python_version()}"
    )
    yield _finding("root", root, "this process may make namespaces", "not root", "run with sudo")
    missing = machine.missing_packages()
    remedy = f"make setup, or apt-get install {' '.join(missing)}"
    yield _finding("packages", not missing, "all tools are installed", f"{', '.join(missing)} not installed", remedy)
    yield _dataset()
    yield _congestion_control()
    yield _cpu_limits(root)
    yield from _docker()
    yield _gpu()
    if not root or missing or not measure:
        why = "measuring was not asked for" if root and not missing else "it needs root and the packages"
        yield Finding("emulation", "ok" if root and not missing else "lacking", None, f"not measured: {why}", "sudo testbed doctor")
        return
    yield from _measured(tell)


def able(findings: list[Finding]) -> bool:
    """Tell whether experiments can run here."""
    return all(finding.state != "lacking" for finding in findings)


def _measured(tell: Callable[[str], None]) -> Iterator[Finding]:
    with MachineLock(share=False, waiting=tell):
        yield from _trials()


def _trials() -> Iterator[Finding]:
    kernel = machine.has_kernel_datapath()
    version = machine.versions().get("openvswitch")
    yield Finding(
        "datapath",
        "ok" if kernel else "substituted",
        "kernel" if kernel else "user",
        f"Open vSwitch {version}, {'kernel' if kernel else 'userspace'} datapath",
        None if kernel else "nothing to do; a kernel with the openvswitch module carries more traffic",
    )
    yield _trial(
        "queue disciplines", "qdiscs", kernel, lambda found: ("htb and bfifo work", "ok"), "use a kernel with sch_htb and sch_fifo"
    )
    yield _trial(
        "netem",
        "netem",
        kernel,
        lambda found: (
            ("the kernel's netem delays links", "ok") if found else ("absent: the user-space delay line stands in", "substituted")
        ),
        "use a kernel with sch_netem",
    )
    yield _trial(
        "delay",
        "delay",
        kernel,
        lambda found: (
            f"a round trip of {found['configured_rtt_s'] * 1e3:.0f} ms takes {found['excess_s'] * 1e3:+.2f} ms before calibration",
            "ok",
        ),
        "stop other work on this machine and try again",
    )
    for mtu in (1500, 9000):
        yield _ceiling(mtu, kernel)


def _trial(name: str, what: str, kernel: bool, tell: Callable[[Any], tuple[str, str]], remedy: str) -> Finding:
    try:
        found = machine.trial(what, kernel)
    except machine.MachineError as error:
        return Finding(name, "lacking", None, str(error), remedy)
    text, state = tell(found)
    return Finding(name, state, found, text, None if state == "ok" else remedy)


def _ceiling(mtu: int, kernel: bool) -> Finding:
    try:
        ceiling_bps = machine.ceiling_bps(mtu, kernel)
    except machine.MachineError as error:
        return Finding(f"ceiling, MTU {mtu}", "lacking", None, str(error), "see the message")
    return Finding(f"ceiling, MTU {mtu}", "ok", round(ceiling_bps / 1e6), f"{ceiling_bps / 1e6:.0f} Mbit/s through the switches, in sum")


def _finding(name: str, there: bool, good: str, bad: str, remedy: str) -> Finding:
    return Finding(name, "ok", True, good) if there else Finding(name, "lacking", False, bad, remedy)


def _dataset() -> Finding:
    try:
        check_dataset("fashion-mnist", None)
    except DatasetError as error:
        return Finding("data set", "lacking", None, str(error), "make setup")
    return Finding("data set", "ok", "fashion-mnist", "Fashion-MNIST is installed and whole")


def _congestion_control() -> Finding:
    known = machine.congestion_controls()
    remedy = "modprobe tcp_cubic, or set transport.congestion_control in the experiment"
    return _finding("cubic", "cubic" in known, f"available: {', '.join(known)}", f"only {', '.join(known)}", remedy)


def _cpu_limits(root: bool) -> Finding:
    try:
        found = cpulimits.tree()
        if root:
            cpulimits.require()
    except cpulimits.CpuLimitError as error:
        return Finding("cpu limits", "absent", None, str(error), "only experiments with cpus need them")
    return Finding("cpu limits", "ok", found.version, f"control groups, version {found.version}")


def _docker() -> list[Finding]:
    """Look at what only container workers need."""
    try:
        with engine.asking(), closing(engine.connect()) as client:
            return list(_of_engine(client))
    except engine.EngineError as error:
        return [Finding("docker", "absent", None, str(error), "only container workers need it")]


def _of_engine(client: Any) -> Iterator[Finding]:
    engine.require_rootful(client)
    about = client.info()
    version, groups = about["ServerVersion"], about.get("CgroupVersion", "1")
    yield Finding("docker", "ok", {"engine": version, "cgroup": int(groups)}, f"engine {version}, control groups version {groups}")
    yield _worker_image(client)
    try:
        engine.require_gpus(client)
    except engine.EngineError as error:
        yield Finding("gpu runtime", "absent", None, str(error), "only container workers with gpus need it")
    else:
        yield Finding("gpu runtime", "ok", engine.GPU_RUNTIME, "containers can be given GPUs")


def _worker_image(client: Any) -> Finding:
    try:
        image = engine.fitting_image(client, engine.WORKER_IMAGE)
    except engine.EngineError as error:
        return Finding("worker image", "absent", None, str(error), "make images (only container workers need it)")
    return Finding("worker image", "ok", image["Id"], f"{engine.WORKER_IMAGE}, {image['Size'] / 1e6:.0f} MB")


def _gpu() -> Finding:
    tool = shutil.which("nvidia-smi")
    done = subprocess.run([tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True) if tool else None
    names = done.stdout.strip().splitlines() if done is not None and done.returncode == 0 else []
    if not names:
        return Finding("gpu", "absent", [], "none: workers train on the CPU", "nothing to do; a GPU only makes training faster")
    return Finding("gpu", "ok", names, ", ".join(names))
