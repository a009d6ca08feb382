"""Start the processes of a group and collect their JSON lines."""

from __future__ import annotations

import json
import socket
import time
from contextlib import AbstractContextManager
from typing import Any

from tests.unit.workloads.preloaded import Fork, Preloaded, preloaded

GROUPS = ["tests.unit.workloads.mishaps", "tests.unit.workloads.replicas"]  # what runs in them,
GROUPS += ["torch._dynamo", "workloads.compression.registry"]  # and what DDP and schemes import only when they are made
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


def ranks(python: Preloaded, module: str, function: str, world_size: int, *arguments: Any) -> AbstractContextManager[list[Fork]]:
    """Call a function of mishaps or replicas once a rank, each in a process of its own."""
    port = free_port()
    given = [(rank, world_size, port, *arguments) for rank in range(world_size)]
    return python.forks([f"from tests.unit.workloads import {module}; {module}.{function}{arguments!r}" for arguments in given])


def train_all(schemes: list[str], prefix: tuple[str, ...] = ()) -> dict[str, list[dict[str, Any]]]:
    """Train with every scheme, as part of another command; return the ranks' answers by scheme."""
    with preloaded(GROUPS, prefix) as python:
        return train_group(python, schemes)


def train_group(python: Preloaded, schemes: list[str], world_size: int = 3, timeout_s: float = 150) -> dict[str, list[dict[str, Any]]]:
    """Train with every scheme; return the ranks' answers by scheme."""
    deadline = time.monotonic() + timeout_s
    with ranks(python, "replicas", "train_all", world_size, schemes) as group:
        for fork in group:
            fork.wait(max(0.0, deadline - time.monotonic()))
        told = [json.loads(line) for fork in group for line in fork.said.splitlines()]
        answers = {scheme: [answer for answer in told if answer["scheme"] == scheme] for scheme in schemes}
        assert all(len(told) == world_size for told in answers.values()), "".join(fork.complained for fork in group)[-3000:]
        return answers
