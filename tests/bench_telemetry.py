"""Measure what watching the queues costs: python -m tests.bench_telemetry (as root) prints the section of docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PORTS = 16
SECONDS = 10.0
SETTLE_S = 3.0
BAR = 0.03  # of one core
RATE_BPS, QUEUE_BYTES = 40e6, 50_000


def measure(hosts: int) -> dict[str, Any]:
    """Sample PORTS queues in a sandbox of their own, `hosts` of them each in another namespace."""
    command = [sys.executable, "-m", "tests.bench_telemetry", str(hosts)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 + SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"the sampler could not be measured:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def inside(hosts: int) -> dict[str, Any]:
    """Shape PORTS interfaces, sample them, and tell what the sampler needed."""
    from testbed.emulation import sandbox

    sandbox.enter()
    namespaces: list[int | None] = [None] * (PORTS - hosts) + [_namespace() for _ in range(hosts)]
    for port, namespace_pid in enumerate(namespaces):
        _shaped_interface(f"port{port}", namespace_pid)
    with tempfile.TemporaryDirectory(dir=sandbox.PRIVATE_DIR) as folder:
        return _sampled(Path(folder), namespaces)


def _sampled(folder: Path, namespaces: list[int | None]) -> dict[str, Any]:
    from controller.board import Board, QueueInfo
    from testbed.emulation import sampler
    from testbed.emulation.child import Child
    from testbed.emulation.network import Queue
    from testbed.emulation.sampling import COARSE_INTERVAL_S
    from topologies import Direction, LinkSpec

    spec = LinkSpec(RATE_BPS, queue_bytes=QUEUE_BYTES)
    queues, infos = [], []
    for port, namespace_pid in enumerate(namespaces):
        direction = Direction(f"link{port}", f"s{port}", f"t{port}", spec, bottleneck=False)
        queues.append(Queue(direction, f"port{port}", namespace_pid, spec.queues()[0], 0))
        infos.append(QueueInfo(direction.name, direction.link, direction.source, direction.target, "", QUEUE_BYTES, 0.0, False))
    board = Board.create(folder / "board.bin", infos, [RATE_BPS] * PORTS)
    child = Child("testbed.emulation.sampler", folder / "sampler.log")
    intervals_s = {queue.direction.name: COARSE_INTERVAL_S for queue in queues}
    child.tell(sampler.job(queues, intervals_s, str(folder / "links.jsonl"), str(board.path)))
    time.sleep(SETTLE_S)
    if any(entry.queue is None for entry in board.read_all()):
        raise RuntimeError(f"not all queues were sampled: {(folder / 'sampler.log').read_text()}")
    began_s, cpu_before_s = time.monotonic(), _cpu_s(child.pid)
    time.sleep(SECONDS)
    ended_s, cpu_s = time.monotonic(), _cpu_s(child.pid) - cpu_before_s
    child.stop()
    rows = [json.loads(line) for line in (folder / "links.jsonl").open()]
    samples = sum(began_s <= row["mono_s"] <= ended_s for row in rows)
    return {"cpu": cpu_s / (ended_s - began_s), "samples_per_s": samples / (ended_s - began_s), "sample_s": cpu_s / samples}


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process to the nanosecond: the clock ticks of its `stat` miss what sleeps between them."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9


def _namespace() -> int:
    """Return the process id of somebody who stays in a network namespace of his own."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def _shaped_interface(name: str, namespace_pid: int | None) -> None:
    from testbed.emulation.namespaces import network_namespace
    from testbed.emulation.shaping import shape_host, shape_of, tool
    from topologies import LinkSpec

    with network_namespace(namespace_pid):
        tool("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p")
        shape = shape_of(name, LinkSpec(RATE_BPS, queue_bytes=QUEUE_BYTES), 1500)
        assert shape is not None
        shape_host(shape)
        for end in (name, f"{name}p"):
            tool("ip", "link", "set", end, "up")


def section() -> str:
    """Measure and return the section in Markdown."""
    rows, met = [], True
    for hosts, text in [(0, f"{PORTS} switch ports"), (PORTS // 2, f"{PORTS // 2} switch ports, {PORTS // 2} hosts' uplinks")]:
        seen = measure(hosts)
        met = met and seen["cpu"] <= BAR
        rows.append(f"| {text} | {seen['samples_per_s']:.0f} | {seen['sample_s'] * 1e6:.1f} | {seen['cpu']:.2%} |")
        print(rows[-1], flush=True)
    return f"""## What does watching the queues cost?
{PORTS} real queues sampled 50 times a second for {SECONDS:.0f} s, into the records and onto the board: all CPU time
of the sampler's process. The bar is {BAR:.0%} of one core: {"met" if met else "missed"}.

| queues | samples/s | a sample (us) | of one core |
|---|---|---|---|
{chr(10).join(rows)}
"""


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(inside(int(sys.argv[1]))), flush=True)
        os._exit(0)
    print(section())


if __name__ == "__main__":
    main()
