"""A job: everything one worker needs to know, as a JSON file written by the runner."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
KINDS = ("train", "replay")
BUDGETS = ("seconds", "steps", "accuracy")


class JobError(ValueError):
    """A job file that cannot be run, with the reason."""


@dataclass(frozen=True)
class Job:
    """One worker's share of one run, SI units."""

    run: str
    rank: int
    world_size: int
    master_addr: str
    master_port: int
    interface: str  # gloo's and the byte counters' interface, e.g. "h1-eth0"; "" leaves gloo to choose and counts nothing
    run_dir: str
    seed: int
    scheme: dict[str, Any]  # {"scheme": "topk", "ratio": 0.1}
    workload: dict[str, Any]  # kind "train" or "replay", see training.py and replay.py
    device: str = "cpu"  # or "cuda": the first GPU that the worker sees
    threads: int = 1
    nice: int = 5
    timeout_s: float = 120.0  # a collective that takes longer fails the worker
    told_steps: list[int] = field(default_factory=list)  # measured steps whose beginning rank 0 tells (see herald.py), beside the first
    dilation: float = 1.0  # the machine's seconds to one of the experiment's; all else here is in the experiment's
    slowdowns: list[dict[str, float]] = field(default_factory=list)  # why this worker computes slowly, see pace.py
    store_prefix: str = ""  # workers that share no folder: their keys in a store that is at master_addr already; "": rank 0 makes a store
    telemetry: str = ""  # path of the controller's board, for schemes that it assists; "": there is none
    schema: int = field(default=SCHEMA)

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise JobError(f"job schema {self.schema} is not {SCHEMA}: write the job with this version of the testbed")
        if not 0 <= self.rank < self.world_size:
            raise JobError(f"rank {self.rank} is outside 0..{self.world_size - 1}")
        if self.workload.get("kind") not in KINDS:
            raise JobError(f"workload kind {self.workload.get('kind')!r} is none of {', '.join(KINDS)}")
        budget = self.workload.get("budget") or {}
        unknown = set(budget) - set(BUDGETS)
        if unknown or all(budget.get(name) is None for name in BUDGETS):
            raise JobError(f"the workload's budget {budget} must give one or more of {', '.join(BUDGETS)}")

    @property
    def stream_dir(self) -> Path:
        """The folder of the run's JSON lines."""
        return Path(self.run_dir) / "stream"

    def save(self, path: str | Path) -> None:
        """Write the job as JSON."""
        Path(path).write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Job:
        """Read a job, refusing unknown and missing keys."""
        raw = json.loads(Path(path).read_text())
        known = {f.name: f for f in dataclasses.fields(cls)}
        unknown = sorted(set(raw) - set(known))
        if unknown:
            raise JobError(f"{path}: unknown keys {', '.join(unknown)}")
        required = {n for n, f in known.items() if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
        missing = sorted(required - set(raw))
        if missing:
            raise JobError(f"{path}: missing keys {', '.join(missing)}")
        return cls(**raw)


def preload_of(scheme: dict[str, Any], workload: dict[str, Any]) -> dict[str, Any]:
    """Return what a nursery is told to import and load before such jobs (see nursery.py)."""
    data = {key: workload[key] for key in ("dataset", "data_dir")} if workload["kind"] == "train" else {}
    return {"preload": {"scheme": scheme, **data}}
