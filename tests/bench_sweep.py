"""What a run of a sweep takes beside its budget, and where that goes: python -m tests.bench sweep (as root)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BAR_S = 12.0
EXPERIMENT = """
name: overhead
topology: {kind: dumbbell, workers: 4, bottleneck: {rate: 10mbit, delay: 5ms}, access: {rate: 100mbit}}
workload: {{workload}, model: resnet8}
schemes: [none, netsense]
sweep: {topology.bottleneck.rate: [10mbit, 40mbit]}
"""
WORKLOADS = {
    "train": "kind: train, dataset: fashion-mnist, optimizer: {name: sgd, lr: 0.05}, budget: {seconds: 60}",
    "replay": "kind: replay, compute: 60ms, budget: {seconds: 10}",
}
PHASES = {
    "boot": ("boot",),
    "verification": ("verification",),
    "workers up": ("first_step",),
    "warm-up": ("warm_up",),
    "evaluations": ("first_evaluation", "evaluations", "last_evaluation"),
    "end": ("ending",),
    "judging": ("judging",),
    "tables": ("writing",),
}


def sweep(workload: str) -> tuple[list[dict[str, Any]], float]:
    """Run a sweep; return the manifests in their order, and how long the whole command took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overhead.yaml"
        path.write_text(EXPERIMENT.replace("{workload}", workload))
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "testbed", "sweep", str(path), "--results", folder], cwd=ROOT, timeout=1800)
        seconds = time.monotonic() - began
        manifests = [json.loads(file.read_text()) for file in Path(folder).glob("overhead/*/manifest.json")]
    if any(manifest["status"] != "complete" for manifest in manifests):
        raise RuntimeError(f"the sweep ended with code {done.returncode}: not all runs are complete")
    return sorted(manifests, key=lambda manifest: str(manifest["started"])), seconds


def overhead_s(manifest: dict[str, Any]) -> dict[str, float]:
    """Return what each phase of a run took beside the budget; the evaluations in the measured phase are a part of their own."""
    phases = dict(manifest["phases_s"])
    phases["evaluations"] = phases.pop("measured") - manifest["workers"][0]["train_s"]
    return phases


def between_s(manifests: list[dict[str, Any]]) -> float:
    """Return the median time from the end of a run to the beginning of the next."""
    times = [(datetime.fromisoformat(one["started"]), datetime.fromisoformat(one["finished"])) for one in manifests]
    return statistics.median((begun - ended).total_seconds() for (_, ended), (begun, _) in pairwise(times))


def section() -> str:
    """Measure and describe."""
    rows, worst_s = [], 0.0
    for kind, workload in WORKLOADS.items():
        manifests, seconds = sweep(workload)
        told = [overhead_s(manifest) for manifest in manifests]
        gap_s = between_s(manifests)
        sums = [sum(one.values()) + gap_s for one in told]
        worst_s = max(worst_s, *sums[1:])
        medians = [statistics.median(sum(one.get(name, 0.0) for name in names) for one in told[1:]) for names in PHASES.values()]
        around_s = seconds - sum(sums) - sum(manifest["workers"][0]["train_s"] for manifest in manifests)
        cells = [*(f"{value:.2f}" for value in (*medians, gap_s)), f"**{statistics.median(sums[1:]):.1f}**", f"{max(sums[1:]):.1f}"]
        rows.append(f"| {kind} | {' | '.join(cells)} | {sums[0]:.1f} | {around_s:.1f} |")
    head = ["workload", *PHASES, "between runs", "sum", "longest", "first run", "around all"]
    return f"""## What does a run of a sweep take beside its budget?
Seconds, medians without the first run, which imports torch for all. 4 workers on a dumbbell with 5 ms, ResNet-8, `none` and `netsense`
at 10 and 40 Mbit/s, budgets of 60 s (training, evaluated every 5 s and once in full) and 10 s (replay). *Around all*: what the
command takes before the first run and for the report. The bar is {BAR_S:.0f} s a run: {"met" if worst_s < BAR_S else "missed"}.

| {" | ".join(head)} |
|{"---|" * len(head)}
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    print(section())
