"""What the hook costs and hides: `attach(model, "none")` against plain DDP, and how much of the exchange overlaps with backward."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.workloads.groups import ROOT, free_port

WORKERS = 2
ROUNDS, STEPS = 30, 20
OVERLAP = """
name: overlap
topology: {kind: star, workers: 2, link: {rate: 200mbit, delay: 1ms}}
schemes: [none, fp16, topk-0.1]
workload: {kind: replay, model: resnet18, budget: {steps: 5}, warmup_steps: 2}
sweep: {workload.compute: [1ms, 2s]}
"""
NO_COMPUTE, COMPUTE = "1ms", "2s"


def attach_cost() -> tuple[float, float]:
    """Return the step time with "none" attached over that of plain DDP, and that of another plain DDP: the noise.

    Interleaved, the median over rounds.
    """
    port = str(free_port())
    command = [sys.executable, "-m", "tests.bench_hooks"]
    group = [subprocess.Popen([*command, str(rank), port], cwd=ROOT, stdout=subprocess.PIPE, text=True) for rank in range(WORKERS)]
    told = [process.communicate(timeout=300)[0] for process in group]
    attached, control = json.loads(told[0])
    return attached, control


def _worker(rank: int, port: str) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from workloads.hooks import attach

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS)
    plain, control, attached = (
        DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
        for _ in range(3)
    )
    attach(attached, "none")
    inputs = torch.randn(64, 256)

    def seconds(model: nn.Module) -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(STEPS):
            model.zero_grad()
            model(inputs).square().sum().backward()
        return time.perf_counter() - began

    for model in (plain, control, attached):
        seconds(model)
    ratios: list[tuple[float, float]] = []
    models = [plain, control, attached]
    for _ in range(ROUNDS):
        models = models[1:] + models[:1]  # nobody is always first
        times = {id(model): seconds(model) for model in models}
        ratios.append((times[id(attached)] / times[id(plain)], times[id(control)] / times[id(plain)]))
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(json.dumps([statistics.median(values) for values in zip(*ratios, strict=True)]))


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
    ratio, control = attach_cost()
    rows = "\n".join(overlap_rows())
    return f"""## What the hook costs and hides
`attach(model, "none")` over DDP with nothing attached: {ratio:.3f} times the step time; a second DDP with nothing attached: {control:.3f}
times (2 workers over loopback, {ROUNDS} interleaved rounds of {STEPS} steps, median).

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
