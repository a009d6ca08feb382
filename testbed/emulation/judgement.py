"""Judge a finished run: what its manifest says of fidelity, validity, CPU, compute inflation and the prediction beside it."""

from __future__ import annotations

import math
import statistics
from typing import Any

from testbed.emulation.plan import RunPlan
from testbed.emulation.validity import Evidence, Window, checks, queue_fidelity, window
from testbed.prediction import predicted_step_s
from testbed.record import RunFolder

MARGIN_S = 1.0  # a change that was due so shortly before the end may not have happened any more


class Unjudgeable(RuntimeError):
    """A run without a complete record of a measured window."""


def judge(plan: RunPlan, folder: RunFolder) -> dict[str, Any]:
    """Compute what the manifest says of a finished run."""
    measured = folder.measured_window()
    steps, all_links, workers = folder.table("steps"), folder.table("links"), folder.workers()
    background, events = folder.table("background"), folder.table("events")
    if measured is None or steps.empty or all_links.empty or len(workers) != len(plan.network.hosts):
        raise Unjudgeable("the workers ended without a complete record of a measured window")
    start_s, end_s = measured
    links = all_links[(all_links["mono_s"] >= start_s) & (all_links["mono_s"] <= end_s)]
    snapshots = folder.usage()
    counters, everything = window(snapshots, start_s, end_s), window(snapshots, 0.0, math.inf)
    whole, by_direction = queue_fidelity(links, plan.network)
    due = [change for change in plan.timeline.timed if (change.at_s or 0.0) < end_s - start_s - MARGIN_S]
    seen = steps, links, all_links, workers, whole, start_s, end_s, counters, everything
    found = checks(Evidence(plan.extremes, plan.mtu, *seen, background, events, plan.dilation, len(due)))
    wrong = [check.text for check in found if not check.ok]
    compute_s = statistics.median(steps["compute_s"] / steps["slowdown"])  # a straggler is slow by itself, not by the emulator
    slowest = float(steps.groupby("step")["slowdown"].max().mean())  # all wait for the slowest
    quiet_s = statistics.median(worker["quiet_compute_s"] for worker in workers)
    bytes_sent = [float(sent) for _, sent in steps.groupby("rank")["bytes_sent"].mean().items()]
    rounds = max(worker["rounds"] for worker in workers)
    predicted_s = None  # of a network that changes there is no one prediction
    if not plan.timeline.changes:
        waited_s = slowest * quiet_s * plan.dilation  # the plan's network is in the machine's time
        predicted_s = predicted_step_s(plan.network, plan.mtu, waited_s, workers[0]["pattern"], bytes_sent, rounds) / plan.dilation
    return {
        "valid": not wrong,
        "invalid_reasons": wrong,
        "fidelity": {**whole.to_json(), "directions": {name: one.to_json() for name, one in by_direction.items()}},
        "checks": [check.to_json() for check in found],
        "cpu": None if counters is None else _cpu(counters),
        "compute_inflation": compute_s / quiet_s if quiet_s else None,
        "workers": workers,
        "prediction": {"step_s": predicted_s, "ignores": [] if background.empty else ["background traffic"]},
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
