"""What the hook costs and hides: `attach(model, "none")` against plain DDP, and how much of the exchange overlaps with backward."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.unit.workloads.groups import free_port
from tests.unit.workloads.preloaded import ROOT

WORKERS = 2
WARM_UP, ROUNDS = 50, 3000
OVERLAP = """
name: overlap
topology: {kind: star, workers: 2, link: {rate: 200mbit, delay: 1ms}}
schemes: [none, fp16, topk-0.1]
workload: {kind: replay, model: resnet18, budget: {steps: 5}, warmup_steps: 2}
sweep: {workload.compute: [1ms, 2s]}
"""
NO_COMPUTE, COMPUTE = "1ms", "2s"


@dataclass(frozen=True)
class Difference:
    """How much longer a step of one model takes than a step of the other: the median over pairs of steps, with its 95 % interval."""

    median_us: float
    low_us: float
    high_us: float
    share: float  # of the other's median step

    def __str__(self) -> str:
        return f"{self.median_us:+.1f} us ({self.low_us:+.1f} to {self.high_us:+.1f}), {self.share:+.2%} of a step"


def difference(longer_s: list[float], than_s: list[float]) -> Difference:
    """Compare steps taken in turn; the interval is the order statistics' own, free of any distribution."""
    gaps_us = sorted((a - b) * 1e6 for a, b in zip(longer_s, than_s, strict=True))
    reach = round(0.98 * math.sqrt(len(gaps_us)))  # 1.96 standard deviations of the rank of the median
    middle = len(gaps_us) // 2
    median_us = statistics.median(gaps_us)
    return Difference(median_us, gaps_us[middle - reach], gaps_us[middle + reach], median_us / 1e6 / statistics.median(than_s))


def attach_cost() -> tuple[Difference, Difference]:
    """Return what "none" attached adds to a step of plain DDP, and what another plain DDP does: the noise.

    The models take turns step by step, in a new random order each time, so that whatever the machine does meets all of them alike.
    """
    port = str(free_port())
    command = [sys.executable, "-m", "tests.bench_hooks"]
    group = [subprocess.Popen([*command, str(rank), port], cwd=ROOT, stdout=subprocess.PIPE, text=True) for rank in range(WORKERS)]
    told = [process.communicate(timeout=300)[0] for process in group]
    times = json.loads(told[0])
    return difference(times["attached"], times["plain"]), difference(times["control"], times["plain"])


def _worker(rank: int, port: str) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from workloads.hooks import attach

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)
    models = {
        name: DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
        for name in ("plain", "control", "attached")
    }
    attach(models["attached"], "none")
    inputs = torch.randn(64, 256)
    order = random.Random(1)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(WARM_UP + ROUNDS):
        for name in order.sample(list(models), len(models)):
            dist.barrier()
            began = time.perf_counter()
            models[name].zero_grad()
            models[name](inputs).square().sum().backward()
            times[name].append(time.perf_counter() - began)
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps({name: taken[WARM_UP:] for name, taken in times.items()}))


def overlap_rows() -> list[str]:
    """Replay on an emulated link with and without compute: what does the exchange add to a step when it may hide?"""
    from analysis import summary
    from analysis.load import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "overlap.yaml"
        path.write_text(OVERLAP)
        subprocess.run([sys.executable, "-m", "testbed", "run", str(path), "--results", folder], cwd=ROOT, check=True, timeout=900)
        table = summary.summarise(load(Path(folder) / "overlap"))
    rows = []
    for scheme, runs in table.groupby("scheme", sort=False):
        by_compute = runs.set_index("workload.compute")
        alone_s, step_s, compute_s = (
            by_compute["mean_step_s"][NO_COMPUTE],
            by_compute["mean_step_s"][COMPUTE],
            by_compute["compute_s"][COMPUTE],
        )
        hidden = 1 - (step_s - compute_s) / alone_s
        valid = "yes" if bool(runs["valid"].all()) else "NO"
        rows.append(f"| {scheme} | {alone_s:.2f} | {compute_s:.2f} | {step_s:.2f} | {hidden:.0%} | {valid} |")
    return rows


def section() -> str:
    """Measure and describe."""
    attached, control = attach_cost()
    rows = "\n".join(overlap_rows())
    return f"""## What the hook costs and hides
A step with `attach(model, "none")` against one of plain DDP: {attached}. A second plain DDP against the first: {control}.
(2 workers over loopback, {ROUNDS} rounds in which each model takes one step, in random order; median of the differences, 95 % interval.)

Replay of ResNet-18's gradients (3 buckets), 2 workers, 200 Mbit/s: *alone* is a step without compute, so all of it is encoding,
exchange and decoding; then the same with 2 s of slept compute. *Hidden* is the share of *alone* that the step does not show.

| scheme | alone (s) | compute (s) | step (s) | hidden | valid |
|---|---|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _worker(int(sys.argv[1]), sys.argv[2])
    else:
        print(section())
