"""Trials of background traffic on a real emulated network; each runs in a sandbox of its own, by `scenarios.play`."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.emulation.scenarios import boot

LOOK_S = 0.002


def scheduled(flows: list[dict[str, Any]], seconds: float, rate_bps: float = 10e6, delay_s: float = 0.005) -> dict[str, Any]:
    """Play a schedule on a dumbbell of 2 workers and 4 hosts for traffic, watching the bottleneck and every uplink as it goes on."""
    from testbed.emulation.background import Background
    from testbed.emulation.counters import Counter
    from testbed.emulation.sandbox import PRIVATE_DIR
    from testbed.emulation.usage import folders, snapshot
    from testbed.timeline import BackgroundFlow
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(2, LinkSpec(rate_bps, delay_s), LinkSpec(5 * rate_bps), traffic_hosts=4), 1500)
    folder = Path(PRIVATE_DIR)
    events: list[dict[str, Any]] = []

    def report(kind: str, text: str, data: dict[str, Any]) -> None:
        events.append({"t_s": time.monotonic() - origin_s, "kind": kind, "text": text, **data})

    background = Background(network, [BackgroundFlow(**flow) for flow in flows], folder, folder, report)
    began_s = time.monotonic()
    background.prepare()
    prepared_s = time.monotonic() - began_s
    uplinks = {q.direction.source: Counter(q) for q in network.queues if q.direction.source in network.host_pids}
    bottleneck = Counter(next(q for q in network.queues if q.direction.name == "bottleneck:s1->s2"))
    before = {host: counter.read().sent_bytes for host, counter in uplinks.items()}
    pids = background.pids

    def cpu_s() -> float:
        return snapshot({"background": folders(*pids)}, [], [], 0, None)["cpu_s"]["background"]

    trace: list[tuple[float, int, int]] = []  # when, bytes and packets that the bottleneck has sent
    acts_s: list[float] = []
    origin_s, cpu_before_s = time.monotonic(), cpu_s()
    background.begin(origin_s)
    while (now_s := time.monotonic()) < origin_s + seconds:
        if background.next_due_s() <= now_s:
            background.act(now_s)
            acts_s.append(time.monotonic() - now_s)
        sample = bottleneck.read()
        trace.append((time.monotonic() - origin_s, sample.sent_bytes, sample.sent_packets))
        time.sleep(max(0.0, min(LOOK_S, background.next_due_s() - time.monotonic())))
    used_s = cpu_s() - cpu_before_s
    closing_s = time.monotonic()
    background.close()
    sent = {host: counter.read().sent_bytes - before[host] for host, counter in uplinks.items()}
    rows = [json.loads(line) for line in (folder / "background.jsonl").read_text().splitlines()]
    return {
        "prepared_s": prepared_s,
        "events": events,
        "rows": [{**row, "t_s": row["mono_s"] - origin_s} for row in rows],
        "trace": trace,
        "sent_bytes": sent,
        "longest_act_s": max(acts_s),
        "cpu_s": used_s,
        "closed_s": time.monotonic() - closing_s,
        "is_idle": background.next_due_s() == math.inf and background.pids == [],
    }


def broken(flows: list[dict[str, Any]], kill_s: float, seconds: float) -> dict[str, Any]:
    """Play a schedule, and kill every client in the midst of it."""
    from testbed.emulation.background import Background
    from testbed.emulation.sandbox import PRIVATE_DIR
    from testbed.timeline import BackgroundFlow
    from topologies import LinkSpec, star

    network = boot(star(2, LinkSpec(10e6), traffic_hosts=2), 1500)
    folder, events = Path(PRIVATE_DIR), []

    def report(kind: str, text: str, data: dict[str, Any]) -> None:
        events.append((kind, data["entry"], text))

    background = Background(network, [BackgroundFlow(**flow) for flow in flows], folder, folder, report)
    background.prepare()
    clients = background.pids[::2]
    origin_s = time.monotonic()
    background.begin(origin_s)
    while (now_s := time.monotonic()) < origin_s + seconds:
        if clients and now_s > origin_s + kill_s:
            for pid in clients:
                os.kill(pid, signal.SIGKILL)
            clients = []
        background.act(now_s)
        time.sleep(LOOK_S)
    background.close()
    rows = [json.loads(line) for line in (folder / "background.jsonl").read_text().splitlines()]
    return {"events": events, "rows": [{**row, "t_s": row["mono_s"] - origin_s} for row in rows]}
