"""What containers cost beside processes: python -m tests.bench containers (as root, with a Docker engine and `make images`)."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from testbed.containers.engine import WORKER_IMAGE, EngineError, connect, fitting_image

ROOT = Path(__file__).resolve().parents[1]
BAR_S = 8.0
ROUNDS = 3
KINDS = ("process", "container")
EXPERIMENT = """
name: {kind}
topology: {{kind: dumbbell, workers: 8, bottleneck: {{rate: 20mbit, delay: 5ms}}, access: {{rate: 40mbit}}}}
hosts: {{kind: {kind}}}
workload: {{kind: replay, model: small_cnn, compute: 60ms, budget: {{steps: 30}}}}
schemes: [none, topk-0.1]
"""


def runs(kind: str) -> list[dict[str, Any]]:
    """Run the experiment; return the manifests in their order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.yaml"
        path.write_text(EXPERIMENT.format(kind=kind))
        command = [sys.executable, "-m", "testbed", "run", str(path), "--results", folder, "--no-report"]
        subprocess.run(command, cwd=ROOT, timeout=600, check=True)
        return [json.loads((Path(folder) / kind / scheme / "manifest.json").read_text()) for scheme in ("none", "topk-0.1")]


def until_first_step_s(manifest: dict[str, Any]) -> float:
    """Return how long a run took from its beginning until all workers had done a step."""
    return sum(float(manifest["phases_s"][phase]) for phase in ("boot", "verification", "first_step"))


def section() -> str:
    """Measure and describe; without an engine or an image, say so."""
    try:
        size_bytes = fitting_image(connect(), WORKER_IMAGE)["Size"]
    except EngineError as error:
        return f"## What do containers cost?\nNot measured: {error}.\n"
    told: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            told[kind].append(runs(kind))
    rows: list[str] = []
    starts: dict[str, tuple[list[float], list[float]]] = {}
    for kind in KINDS:
        first, later = ([until_first_step_s(manifests[i]) for manifests in told[kind]] for i in (0, 1))
        every = [manifest for manifests in told[kind] for manifest in manifests]
        rate = max(abs(r["measured_bps"] / r["configured_bps"] - 1) for one in every for r in one["verification"]["rates"])
        rtt_ms = max(abs(r["measured_s"] - r["configured_s"]) for one in every for r in one["verification"]["rtts"]) * 1e3
        tested = [one["fidelity"]["value"] for one in every if one["fidelity"]["value"] is not None]
        fidelity = f"{min(tested):.3f}" if tested else "not tested"
        end_s = statistics.median(one["phases_s"]["ending"] for one in every)
        steps = [statistics.median(one["workers"][0]["train_s"] / one["workers"][0]["steps"] for one in pair) * 1e3 for pair in told[kind]]
        starts[kind] = first, later
        cells = [f"{statistics.median(values):.1f}" for values in starts[kind]] + [f"{end_s:.2f}", f"{statistics.median(steps):.0f}"]
        valid = sum(one["valid"] for one in every)
        rows.append(f"| {kind} | {' | '.join(cells)} | {rate:.2%} | {rtt_ms:.2f} | {fidelity} | {valid} of {len(every)} |")
    more = [[box - plain for plain, box in zip(*both, strict=True)] for both in zip(*(starts[kind] for kind in KINDS), strict=True)]
    missed = sum(seconds > BAR_S for each in more for seconds in each)
    first_words, later_words = (f"{statistics.median(each):+.1f} s ({min(each):+.1f} to {max(each):+.1f})" for each in more)
    verdict = f"missed in {missed} of {2 * ROUNDS} starts" if missed else f"met in all {2 * ROUNDS} starts"
    return f"""## What do containers cost?
8 workers on a dumbbell of 20 Mbit/s and 5 ms, replay of `none`, then of `topk-0.1`; medians of {ROUNDS} commands with processes and
{ROUNDS} with containers, in turn. *First* and *second start*: from the beginning of a command's first and second run until all workers
have done a step, the network booted and verified; only processes have torch in memory for the second. Containers start
{first_words} later than processes in the first run, {later_words} in the second. The bar is {BAR_S:.0f} s:
{verdict}. Errors are the largest of all runs, fidelity is the least. The worker's image has {size_bytes / 1e6:.0f} MB.

| hosts | first start (s) | second start (s) | end (s) | step (ms) | rate error | RTT error (ms) | fidelity | valid |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


if __name__ == "__main__":
    print(section())
