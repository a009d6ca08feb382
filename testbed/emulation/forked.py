"""Workers as processes, forked from one that has torch and the data in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.emulation.child import Child, Message
from testbed.emulation.places import Place
from testbed.emulation.plan import RunPlan
from testbed.emulation.workers import READY_S, rank_of
from workloads.datasets import Dataset
from workloads.job import preload_of
from workloads.nursery import Nursery  # torch and all that workers need, imported here once for all runs


class ProcessWorkers:
    """The workers of one run; see workers.Workers."""

    def __init__(self, plan: RunPlan, logs: Path, datasets: dict[Any, Dataset]) -> None:
        """Fork that process; `datasets` are those loaded already. Call it before there are threads."""
        self._plan, self._logs = plan, logs
        self._nursery = Child("workloads.nursery", logs / "nursery.log", lambda: Nursery(datasets=datasets).serve())
        self._pids: dict[int, int] = {}
        self.places: dict[str, Place] = {}
        self.lines = [self._nursery.lines]

    def wait_until_ready(self) -> None:
        """Have the scheme's parts and the data loaded."""
        self._nursery.tell(preload_of(self._plan.scheme, self._plan.workload))
        self._nursery.wait_for("preloaded", READY_S)

    def device(self, rank: int) -> str:
        """Return the CPU for all."""
        return "cpu"

    def start(self, rank: int, job: Path, netns_pid: int) -> None:
        """Have a worker forked."""
        place = {"netns_pid": netns_pid, "cpu_group": self._plan.cpu_groups[rank]}
        self._nursery.tell({"job": str(job), **place, "log": str(self._logs / f"worker-{rank}.log")})

    def hear(self) -> list[Message]:
        """Return what the nursery says."""
        told = []
        for message in self._nursery.hear(0):
            rank = rank_of(message.get("job", ""))
            if message["event"] == "started":
                self._pids[rank] = message["pid"]
            told.append({**message, "rank": rank})
        return told

    def processes(self) -> list[Path]:
        """Return the workers that were started."""
        return [Path(f"/proc/{pid}") for pid in self._pids.values()]

    def helpers(self) -> list[Path]:
        """Return the nursery."""
        return [Path(f"/proc/{self._nursery.pid}")]

    def close(self) -> dict[str, Any]:
        """Leave the nursery to end with the sandbox."""
        return {}
