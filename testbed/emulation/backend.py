"""Run one run of an experiment on the emulated network: start its sandbox, follow it, judge what it recorded."""

from __future__ import annotations

import json
import math
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.emulation.counters import VerificationError
from testbed.emulation.plan import RunPlan
from testbed.emulation.validity import Evidence, Window, checks, queue_fidelity, window
from testbed.prediction import predicted_step_s
from testbed.processes import die_with_parent
from testbed.record import RunFolder

TICK_S = 0.5
LOG_LINES = 12


class RunFailed(RuntimeError):
    """A run that did not come to its end; the message has the reason and the last log lines."""


class NotFaithful(RunFailed):
    """A run that never began to train: its network was measured and found wrong, which on a busy machine passes."""


def execute(plan: RunPlan, folder: RunFolder, stage: Callable[[str], None], tick: Callable[[], None]) -> None:
    """Run the plan in a sandbox of its own, keeping the folder's manifest up to date; raise RunFailed if it fails."""
    log = folder.logs / "sandbox.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "testbed.emulation.inside"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C is the runner's to handle
            preexec_fn=die_with_parent,
        )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(plan.to_json()).encode() + b"\n")
        process.stdin.flush()
        stage("booting the network")
        _follow(process.stdout.fileno(), folder, stage, tick)
        if process.wait() != 0:
            raise RunFailed(f"the sandbox ended with code {process.returncode}\n{_last_lines(log)}")
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.read()  # ends when the sandbox's process 1 is gone, and everything with it
        process.wait()


def _follow(descriptor: int, folder: RunFolder, stage: Callable[[str], None], tick: Callable[[], None]) -> None:
    pending = b""
    while True:
        if select.select([descriptor], [], [], TICK_S)[0]:
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _note(json.loads(line), folder, stage)
        tick()


def _note(message: dict[str, Any], folder: RunFolder, stage: Callable[[str], None]) -> None:
    now = time.monotonic()
    match message.pop("event"):
        case "booted":
            folder.save(boot_s=message["seconds"], substituted=message["substituted"])
            folder.event(now, "booted", f"network up in {message['seconds']:.2f} s")
            stage("verifying the network")
        case "verified":
            folder.save(verification=message["verification"], transport=message["transport"])
            folder.event(now, "verified", f"rates and round-trip times verified in {message['verification']['seconds']:.2f} s")
            stage("starting workers")
        case "started":
            stage(f"worker {message['rank']} started, warming up")
        case "worker_failed":
            rank, code = message["rank"], message["code"]
            what = f"killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
            folder.event(now, "worker_failed", f"worker {rank} was {what}", message)
            raise RunFailed(f"worker {rank} {what}; its last lines:\n{_last_lines(folder.path / message['log'])}")
        case "error":
            folder.event(now, "error", message["text"])
            raise NotFaithful(message["text"]) if message["kind"] == VerificationError.__name__ else RunFailed(message["text"])


def _last_lines(log: Path) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return "(no log)"


def judge(plan: RunPlan, folder: RunFolder) -> dict[str, Any]:
    """Compute what the manifest says of a finished run: fidelity, checks, validity, CPU, inflation, prediction."""
    measured = folder.measured_window()
    steps, all_links, workers = folder.table("steps"), folder.table("links"), folder.workers()
    if measured is None or steps.empty or all_links.empty or len(workers) != len(plan.network.hosts):
        raise RunFailed("the workers ended without a complete record of a measured window")
    start_s, end_s = measured
    links = all_links[(all_links["mono_s"] >= start_s) & (all_links["mono_s"] <= end_s)]
    snapshots = folder.usage()
    counters, everything = window(snapshots, start_s, end_s), window(snapshots, 0.0, math.inf)
    whole, by_direction = queue_fidelity(links, plan.network)
    found = checks(Evidence(plan.network, plan.mtu, steps, links, all_links, workers, whole, counters, everything))
    wrong = [check.text for check in found if not check.ok]
    compute_s = statistics.median(steps["compute_s"])
    quiet_s = statistics.median(worker["quiet_compute_s"] for worker in workers)
    bytes_sent = [float(sent) for _, sent in steps.groupby("rank")["bytes_sent"].mean().items()]
    rounds = max(worker["rounds"] for worker in workers)
    return {
        "valid": not wrong,
        "invalid_reasons": wrong,
        "fidelity": {**whole.to_json(), "directions": {name: one.to_json() for name, one in by_direction.items()}},
        "checks": [check.to_json() for check in found],
        "cpu": None if counters is None else _cpu(counters),
        "compute_inflation": compute_s / quiet_s if quiet_s else None,
        "workers": workers,
        "prediction": {"step_s": predicted_step_s(plan.network, plan.mtu, quiet_s, workers[0]["pattern"], bytes_sent, rounds)},
        "origin_mono_s": float(steps[steps["rank"] == 0]["mono_s"].min()),
    }


def _cpu(counters: Window) -> dict[str, float]:
    ours = {f"{role}_s": counters.growth("cpu_s", role) for role in counters.last["cpu_s"]}
    busy_s = counters.growth("machine_busy_s")
    return {
        **ours,
        "foreign_s": max(0.0, busy_s - sum(ours.values())),
        "steal_s": counters.growth("machine_steal_s"),
        "busy_s": busy_s,
        "wall_s": counters.seconds,
    }


def network_json(plan: RunPlan) -> dict[str, Any]:
    """Return the network for the manifest."""
    return {**asdict(plan.network), "mtu": plan.mtu}
