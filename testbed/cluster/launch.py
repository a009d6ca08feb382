"""What torchrun tells the ranks it starts, and the command that starts them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PORT = 29500


@dataclass(frozen=True)
class Launch:
    """This rank's place in the job."""

    rank: int
    world_size: int
    local_world_size: int  # ranks that the same torchrun started
    nodes: int  # torchruns
    address: str  # of the store, on rank 0's machine
    port: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Launch | None:
        """Read what torchrun set; None if it did not start this process."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if any(name not in environment for name in names):
            return None
        rank, world, local, nodes = (int(environment[name]) for name in names[:4])
        return cls(rank, world, local, nodes, environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))


def command(arguments: list[str], nodes: int, ranks_a_node: int = 1) -> str:
    """Return what to give on every machine, but for the name of the one where they meet."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=HOST:{PORT}"]
    return shlex.join(["torchrun", f"--nnodes={nodes}", f"--nproc-per-node={ranks_a_node}", *meeting, "-m", "testbed.cluster", *arguments])


def how_to_start(file: Path, workers: int, results: Path, only: str | None) -> str:
    """Say how an experiment on real machines is started."""
    arguments = [str(file), "--results", str(results), *(["--only", only] if only else [])]
    given = command(arguments, workers)
    return f"backend: cluster is started by torchrun: give this on each of the {workers} machines, HOST being one of them: {given}"


def not_ours(backend: str) -> str:
    """Say what to do with an experiment that is not for real machines."""
    return f"backend: {backend} runs on one machine: use `testbed run`"
