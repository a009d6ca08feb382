"""Start the processes of a group and collect their JSON lines."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SCHEMES = [
    *("none", "fp16", "bf16", "topk-0.05", "randomk-0.05", "qsgd", "terngrad", "onebit", "natural", "powersgd-2"),
    *("3lc", "3lc-1.75", "3lc-ps", "none-ps", "dc2", "netsense", "netsense-sdn", "budget"),
]


def free_port() -> int:
    """Return a port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def train_all(
    schemes: list[str], world_size: int = 3, prefix: tuple[str, ...] = (), timeout_s: float = 150
) -> dict[str, list[dict[str, Any]]]:
    """Train with every scheme; return the ranks' answers by scheme."""
    port = str(free_port())
    command = [sys.executable, "-m", "tests.unit.workloads.replicas"]
    shell = " & ".join(f"{' '.join(command)} {rank} {world_size} {port} {' '.join(schemes)}" for rank in range(world_size))
    done = subprocess.run(
        [*prefix, "sh", "-c", f"{shell} & wait"], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    answers: dict[str, list[dict[str, Any]]] = {scheme: [] for scheme in schemes}
    for line in done.stdout.splitlines():
        answer = json.loads(line)
        answers[answer["scheme"]].append(answer)
    assert all(len(told) == world_size for told in answers.values()), done.stderr[-3000:]
    return answers
