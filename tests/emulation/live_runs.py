"""Whole runs with something happening in the middle; each runs in a sandbox of its own, by `scenarios.play`."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.emulation.telemetered import iperf

BATCH_SIZE = 32


def _inside(scheme: str, rate_bps: float, budget: dict[str, float]) -> Any:
    """Boot a run of replayed ResNet-8 gradients on a dumbbell of four workers."""
    from controller.routing import RoutingPolicy
    from testbed import machine
    from testbed.emulation.child import JsonLines
    from testbed.emulation.inside import Inside
    from testbed.emulation.plan import RunPlan
    from testbed.emulation.sandbox import PRIVATE_DIR
    from topologies import LinkSpec, dumbbell
    from workloads.schemes import resolve

    folder = Path(PRIVATE_DIR) / "run"
    for name in ("stream", "logs"):
        (folder / name).mkdir(parents=True)
    limits = {"seconds": None, "steps": None, "accuracy": None, **budget}
    workload = {"kind": "replay", "model": "resnet8", "compute_s": 0.06, "batch_size": BATCH_SIZE, "budget": limits, "warmup_steps": 4}
    plan = RunPlan(
        run="live",
        run_dir=str(folder),
        network=dumbbell(4, LinkSpec(rate_bps, 0.005), LinkSpec(100e6)).with_queues_fixed(1500),
        mtu=1500,
        transport={"congestion_control": "cubic", "ecn": False},
        kernel_datapath=machine.has_kernel_datapath(),
        seed=1,
        routing=asdict(RoutingPolicy()),
        scheme=resolve(scheme).params,
        workload=workload,
        slowdowns=[[]] * 4,
        cpu_groups=[None] * 4,
    )
    return Inside(plan, JsonLines(os.open(os.devnull, os.O_RDONLY)))


def _rows(inside: Any, name: str) -> list[dict[str, Any]]:
    path = inside.stream / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _at_step(inside: Any, step: int, happen: Callable[[], None]) -> threading.Thread:
    """Let something happen once worker 0 has done so many steps."""

    def wait() -> None:
        while len(_rows(inside, "steps-0.jsonl")) < step:
            time.sleep(0.01)
        happen()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def rate_step(scheme: str, before_bps: float, after_bps: float, steps: int) -> dict[str, Any]:
    """Change the bottleneck's rate half-way; return the ratio of every step, and the first step that began after the change."""
    from testbed.emulation.adjust import set_rates

    inside = _inside(scheme, before_bps, {"steps": steps})
    changed: list[float] = []

    def change() -> None:
        directions = inside.network.description.directions()
        set_rates(inside.network, {direction: after_bps for direction in directions if direction.bottleneck})
        changed.append(time.monotonic())

    thread = _at_step(inside, steps // 2, change)
    code = inside.run()
    thread.join()
    rows = _rows(inside, "steps-0.jsonl")
    return {
        "code": code,
        "ratios": [row["ratio"] for row in rows],
        "first_after": next(row["step"] for row in rows if row["mono_s"] > changed[0]),
        "btlbw_bps": [row["btlbw_bps"] for row in rows],
        "events": [event["text"] for event in _rows(inside, "events-0.jsonl") if event["kind"] == "policy_source"],
    }


def telemetry_lost(scheme: str, steps: int) -> dict[str, Any]:
    """Stop the sampler for three seconds in the middle of a run."""
    inside = _inside(scheme, 10e6, {"steps": steps})

    def pause() -> None:
        os.kill(inside.sampler.pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(inside.sampler.pid, signal.SIGCONT)

    thread = _at_step(inside, steps // 4, pause)
    code = inside.run()
    thread.join()
    events = [_rows(inside, f"events-{rank}.jsonl") for rank in range(4)]
    told = [[event["text"] for event in mine if event["kind"] == "policy_source"] for mine in events]
    ratios = [[row["ratio"] for row in _rows(inside, f"steps-{rank}.jsonl")] for rank in range(4)]
    return {"code": code, "told": told, "ratios": ratios}


def competing(scheme: str, rate_bps: float, seconds: float, flows: int) -> dict[str, Any]:
    """Train against TCP flows that cross the bottleneck both ways; return the throughput and the mean ratio."""
    inside = _inside(scheme, rate_bps, {"seconds": seconds})
    network = inside.network
    longer = seconds + 20
    options = ["-P", str(flows)]
    rivals = [iperf(network, "h1", "h3", longer, *options), iperf(network, "h3", "h1", longer, *options, port=5202)]
    code = inside.run()
    rows = _rows(inside, "steps-0.jsonl")
    for rival in rivals:
        rival.kill()
    elapsed_s = rows[-1]["train_s"]
    return {
        "code": code,
        "samples_s": len(rows) * 4 * BATCH_SIZE / elapsed_s,
        "ratio": sum(row["ratio"] for row in rows) / len(rows),
        "events": [event["text"] for event in _rows(inside, "events-0.jsonl") if event["kind"] == "policy_source"],
    }


def controller_hangs() -> dict[str, Any]:
    """Stop the controller in mid-run and ask it for more than its pipe holds; the run must end all the same, with a new one."""
    inside = _inside("none", 20e6, {"seconds": 14})
    first = inside.network.control.pid

    def hang() -> None:
        os.kill(first, signal.SIGSTOP)
        for number in range(20):
            inside.network.control.pin(number, ["h1", "s1", "s2", "h3"])

    thread = _at_step(inside, 2, hang)
    code = inside.run()
    thread.join()
    return {"code": code, "replaced": inside.network.control.pid != first}


def sampler_dies() -> dict[str, Any]:
    """Kill the sampler in mid-run."""
    inside = _inside("none", 20e6, {"seconds": 10})
    thread = _at_step(inside, 2, lambda: os.kill(inside.sampler.pid, signal.SIGKILL))
    try:
        inside.run()
    except RuntimeError as fault:
        return {"fault": str(fault)}
    finally:
        thread.join()
    return {"fault": ""}
