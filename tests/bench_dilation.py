"""Does a dilated run tell the same step times? python -m tests.bench_dilation (as root) prints the section of docs/benchmarks.md."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

from analysis.load import load

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = """
name: dilation
topology: {kind: dumbbell, workers: 4, bottleneck: {rate: 20mbit, delay: 5ms}, access: {rate: 100mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {steps: 50}}
schemes: [none, topk-0.1, 3lc]
sweep: {topology.bottleneck.loss: [0%, 0.5%], dilation: [1, 5]}
"""
PLAIN, SLOW = "1", "5"
BARS = {"0%": 0.05, "0.5%": 0.10}
LONGEST_S = 3600


def measure(folder: Path) -> pd.DataFrame:
    """Run the experiment; return the median step of each valid run, with its scheme, loss and dilation."""
    path = folder / "dilation.yaml"
    path.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "testbed", "run", str(path), "--results", str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, timeout=LONGEST_S)
    if done.returncode not in (0, 3):  # 3: some runs are not valid, and are left out
        raise RuntimeError(f"the experiment ended with code {done.returncode}")
    rows = []
    for run in load(folder / "dilation").runs:
        if run.valid:
            steps = run.steps[run.steps["rank"] == 0]
            cell = {"loss": run.cell["topology.bottleneck.loss"], "dilation": run.cell["dilation"]}
            rows.append(
                {
                    "scheme": run.scheme,
                    **cell,
                    "step_s": steps["step_s"].median(),
                    "codec_s": (steps["encode_s"] + steps["decode_s"]).median(),
                }
            )
    return pd.DataFrame(rows)


def compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row a scheme and loss: the step times undilated and dilated, and how far they are apart."""
    means = runs.set_index(["scheme", "loss", "dilation"])["step_s"].unstack("dilation")
    table = pd.DataFrame({"plain_s": means[PLAIN], "slow_s": means[SLOW]})
    table["apart"] = table["slow_s"] / table["plain_s"] - 1
    table["bar"] = [BARS[loss] for _, loss in table.index]
    return table


def section() -> str:
    """Measure and return the section in Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        table = compared(measure(Path(folder)))
    rows = []
    for (scheme, loss), row in zip(table.index, table.itertuples(), strict=True):
        times = f"{row.plain_s * 1e3:.1f} | {row.slow_s * 1e3:.1f}"
        rows.append(f"| {scheme} | {loss} | {times} | {row.apart:+.1%} | {row.bar:.0%} | {_verdict(row.apart, row.bar)} |")
    return f"""## Does a dilated run tell the same step times?
Replay of ResNet-8's gradients, 60 ms of compute, 4 workers on a dumbbell of 20 Mbit/s and 5 ms, Reno (the default where time is
dilated): the median step of 50 on worker 0, at `dilation: 1` and `dilation: 5`, one run each. Losses are random, of each
frame on the bottleneck, both ways.

| scheme | loss | step (ms) | dilated 5x (ms) | apart | bar | |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}
"""


def _verdict(apart: float, bar: float) -> str:
    if pd.isna(apart):
        return "no valid run"
    return "met" if abs(apart) <= bar else "missed"


if __name__ == "__main__":
    print(section())
