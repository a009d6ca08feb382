"""Slow workers and slow time on a real network: dilated runs tell the same, limits hold, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess

import pandas as pd
import pytest

from tests.emulation.experiments import ROOT, command, look_at_machine, manifest, start, wait_until, workers_of
from tests.measuring import measured

pytestmark = pytest.mark.usefixtures("emulation")

DILATED = """
name: dilated
topology: {kind: dumbbell, workers: 2, bottleneck: {rate: 20mbit, delay: 5ms}, access: {rate: 40mbit}}
workload: {kind: replay, model: small_cnn, compute: 40ms, budget: {steps: 16}, warmup_steps: 3}
schemes: [none, topk-0.1]
sweep: {dilation: [1, 5]}
"""
LIMITED = """
name: limited
topology: {kind: dumbbell, workers: 2, bottleneck: {rate: 20mbit, delay: 2ms}, access: {rate: 40mbit}}
workload: {kind: train, model: small_cnn, dataset: fashion-mnist, batch_size: 256, optimizer: {name: sgd, lr: 0.05}, budget: {seconds: %s}}
stragglers: [{worker: 1, cpus: 0.25}]
schemes: [topk-0.1]
"""


def run(folder, name, text):
    path = folder / f"{name}.yaml"
    path.write_text(text)
    done = subprocess.run(command(path), cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder / "results" / name


@measured
def test_a_dilated_run_tells_the_same_step_times(tmp_path):
    results = run(tmp_path, "dilated", DILATED)
    for scheme in ("none", "topk-0.1"):
        plain, slow = (pd.read_parquet(results / f"{scheme}_dilation-{k}" / "steps.parquet").query("rank == 0") for k in (1, 5))
        assert slow["step_s"].median() == pytest.approx(plain["step_s"].median(), rel=0.05)
        told = manifest(results, f"{scheme}_dilation-5")
        assert "rto_min" in told["transport"]["route"]
        assert told["network"] == manifest(results, f"{scheme}_dilation-1")["network"]
        assert told["verification"]["rtts"][0]["configured_s"] == pytest.approx(0.05)  # of the machine
        links = pd.read_parquet(results / f"{scheme}_dilation-5" / "links.parquet")
        assert set(links[links["link"] == "bottleneck"]["rate_bps"]) == {20e6}
        assert links["t_s"].max() == pytest.approx(slow["train_s"].max(), abs=1.0)


@measured
def test_a_limited_worker_has_its_share_of_a_processor_and_no_more(tmp_path):
    before = look_at_machine()
    results = run(tmp_path, "limited", LIMITED % 5)
    told = manifest(results, "topk-0.1")
    limited = told["workers"][1]["cpu_s"] / told["workers"][1]["wall_s"]
    assert limited < 0.25 * 1.1  # a period may begin and end with a full share
    assert limited > 0.25 * 0.5
    (limit,) = told["cpu_limits"]
    assert (limit["worker"], limit["cpus"]) == (1, 0.25)
    assert limit["throttled_s"] > 0
    compute_s = pd.read_parquet(results / "topk-0.1" / "steps.parquet").groupby("rank")["compute_s"].mean()
    assert compute_s[1] > 1.5 * compute_s[0]  # and it waits while it sends and receives, too
    assert look_at_machine() == before


def test_kill_9_of_a_run_with_limits_leaves_no_group(tmp_path):
    before = look_at_machine()
    path = tmp_path / "limited.yaml"
    path.write_text(LIMITED % 120)
    folder = tmp_path / "results" / "limited"
    process = start(command(path))
    steps = folder / "topk-0.1/stream/steps-0.jsonl"
    wait_until(lambda: len(workers_of(folder / "topk-0.1")) == 2 and steps.exists() and steps.stat().st_size > 0, 60, "workers training")
    assert look_at_machine().cpu_groups > before.cpu_groups
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: look_at_machine() == before, 5, f"the machine as it was, not {look_at_machine()}")
