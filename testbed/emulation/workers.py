"""Where the workers of a run live: as processes in the hosts' network namespaces (forked.py), or in containers (testbed/containers)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.emulation.child import JsonLines, Message
from testbed.emulation.places import Place

READY_S = 120.0


class Workers(Protocol):
    """The workers of one run, from before there is a network to the end of the last one."""

    @property
    def places(self) -> Mapping[str, Place]:
        """Return the hosts that are there already; the others are the network's to make."""

    @property
    def lines(self) -> Sequence[JsonLines]:
        """Return what to wait for."""

    def wait_until_ready(self) -> None:
        """Wait until workers can be started at once: nothing is imported or loaded any more."""

    def device(self, rank: int) -> str:
        """Return what a worker computes with: cpu or cuda."""

    def start(self, rank: int, job: Path, netns_pid: int) -> None:
        """Start a worker on its job, in the network of a process; all jobs are written when the first is started."""

    def hear(self) -> list[Message]:
        """Return what has happened: {event: started | exited, rank, code, why}, or {event: error, text}; `why` may say more than `code`."""

    def processes(self) -> list[Path]:
        """Return the folders in /proc of the workers."""

    def helpers(self) -> list[Path]:
        """Return those of the processes that only serve them."""

    def close(self) -> dict[str, Any]:
        """End what is left of them, all being over; return what the manifest is to say."""


def rank_of(job: str) -> int:
    """Return whose job a file is; -1 for none."""
    return int(Path(job).stem.rpartition("-")[2]) if job else -1
