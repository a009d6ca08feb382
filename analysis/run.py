"""One run of an experiment: what its manifest says, whether it may be believed, and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
import pyarrow as pa

from analysis import frames

T = TypeVar("T")
SCHEMA = 1  # newest layout this code reads
WORKLOAD_FIELDS = ("workload", "workload.kind")  # sweeping kinds gives bars side by side, not another facet
VARIANT = "workload.variant"  # how the cell names a swept workload; `workload` itself is its kind


@dataclass(frozen=True)
class Run:
    """One run of the experiment; its tables are read when first asked for."""

    folder: Path
    manifest: dict[str, Any]
    damage: list[str] = field(default_factory=list)  # what could not be read, in words
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # see `once`

    @property
    def slug(self) -> str:
        """Return the run's folder name, which is how the experiment lists it."""
        return self.folder.name

    @property
    def scheme(self) -> str:
        """Return the scheme's slug."""
        return str(self.manifest.get("scheme", "unknown"))

    @property
    def label(self) -> str:
        """Return the scheme as figures name it."""
        return str(self.manifest.get("scheme_label") or self.scheme)

    @property
    def workload(self) -> str:
        """Return `train` or `replay`."""
        kind = dig(self.manifest, "spec", "workload", "kind") or self._swept_workload()
        return str(kind or "train")

    @property
    def on_machines(self) -> bool:
        """Tell whether it ran on real machines, whose queues nobody sampled."""
        return dig(self.manifest, "spec", "backend") == "cluster"

    @property
    def has_server(self) -> bool:
        """Tell whether worker 0 was a parameter server, so that pushes and pulls differ."""
        workers = self.manifest.get("workers")
        return bool(workers) and isinstance(workers, list) and dig(workers[0], "pattern") == "server"

    @property
    def dilation(self) -> float:
        """Return how many of the machine's seconds were one of the experiment's, in which everything is told."""
        value = self.manifest.get("dilation")
        return float(value) if isinstance(value, int | float) and value > 0 else 1.0

    @property
    def cell(self) -> dict[str, Any]:
        """Return the swept fields and their values; a swept workload is among them only if its kind does not tell it from others."""
        swept = {key: value for key, value in self._all_swept().items() if key not in WORKLOAD_FIELDS or value != self.workload}
        return {VARIANT if key in WORKLOAD_FIELDS else key: value for key, value in swept.items()}

    @property
    def cell_key(self) -> str:
        """Return the cell as text that can be compared."""
        return json.dumps(self.cell, sort_keys=True, default=str)

    @property
    def repeat(self) -> int:
        """Return which repetition this is, from 1."""
        value = self.manifest.get("repeat")
        return value if isinstance(value, int) else 0

    @property
    def is_old(self) -> bool:
        """Tell whether the run was written by a testbed before the first numbered layout, or by an older one than this."""
        schema = self.manifest.get("schema")
        return not isinstance(schema, int) or schema < SCHEMA

    @property
    def status(self) -> str:
        """Return the manifest's status, or `damaged` when files of the run cannot be read."""
        return "damaged" if self.damage else str(self.manifest.get("status", "unknown"))

    @property
    def complete(self) -> bool:
        """Tell whether the run wrote everything and all of it can be read."""
        return self.status == "complete"

    @property
    def valid(self) -> bool:
        """Tell whether the run's numbers may be believed; only a complete run can be valid."""
        return self.complete and self.manifest.get("valid") is True

    @property
    def invalid_reasons(self) -> list[str]:
        """Say why the run is not valid, in words; empty for a valid run."""
        if self.valid:
            return []
        reasons = list(self.damage)
        if not reasons and not self.complete:
            reasons.append(f"{self.status}: {self._why_incomplete()}")
        listed = self.manifest.get("invalid_reasons")
        reasons += [str(reason) for reason in listed] if isinstance(listed, list) else []
        return reasons or ["not marked valid"]

    @property
    def verdict(self) -> str | None:
        """Return the short note a figure writes beside a run that is not valid."""
        if self.valid:
            return None
        if self.damage:
            return f"damaged: {self.damage[0]}"
        return f"invalid: {'; '.join(self.invalid_reasons)}" if self.complete else f"incomplete: {self._why_incomplete()}"

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Return the steps, with columns `run` and `scheme` in front."""
        return self._frame("steps")

    @cached_property
    def evals(self) -> pd.DataFrame:
        """Return the evaluations."""
        return self._frame("evals")

    @property
    def timed_evals(self) -> pd.DataFrame:
        """Return the evaluations by the clock and the last one: those after given steps come sooner the faster a scheme is."""
        after_steps = dig(self.manifest, "spec", "workload", "eval_steps")
        return self.evals[self.evals["final"] | ~self.evals["step"].isin(after_steps if isinstance(after_steps, list) else [])]

    @property
    def links(self) -> pd.DataFrame:
        """Return the link samples, without OpenFlow's counters; read anew each time, as these are the large ones and a sweep has many."""
        return self._frame("links", list(frames.COLUMNS["links"]))

    @cached_property
    def events(self) -> pd.DataFrame:
        """Return the events."""
        return self._frame("events")

    @cached_property
    def background(self) -> pd.DataFrame:
        """Return what background traffic delivered; empty for a run without."""
        return self._frame("background")

    def once(self, name: str, work: Callable[[Run], T]) -> T:
        """Return what `work` makes of this run's files, worked out the first time only."""
        if name not in self.kept:
            self.kept[name] = work(self)
        return cast(T, self.kept[name])

    def read(self, table: str, columns: list[str] | None = None, filters: frames.Filters | None = None) -> pa.Table:
        """Read a table: Parquet if the run completed, else the stream, which stays until all Parquet files are written."""
        path = self.folder / f"{table}.parquet"
        if self._from_stream:
            read, complaints = frames.stream_table(self.folder / "stream", table, columns, filters, self.dilation)
            for text in complaints:
                self._note(text)
        elif not path.exists() and (self._may_lack(table) or self.manifest.get("status") != "complete"):
            read = frames.no_rows(table, columns)
        else:
            read, complaint = frames.parquet_table(path, columns, filters)
            self._note(complaint)
        return read

    def most_rows(self, table: str) -> int:
        """Return how many rows a table has at most, without reading it."""
        return frames.most_rows(self.folder, table, self._from_stream)

    def check(self) -> None:
        """Note damage that shows without reading the tables."""
        if self.manifest.get("status") == "complete":
            for table in frames.TABLES:
                path = self.folder / f"{table}.parquet"
                if path.exists() or not self._may_lack(table):
                    self._note(frames.check_parquet(path, may_lack=self.is_old))
        elif not (self.folder / "stream").is_dir() and not (self.folder / "steps.parquet").exists():
            self._note("nothing was recorded: neither stream/ nor steps.parquet is there")

    @property
    def _from_stream(self) -> bool:
        return self.manifest.get("status") != "complete" and (self.folder / "stream").is_dir()

    def _frame(self, table: str, columns: list[str] | None = None) -> pd.DataFrame:
        return frames.to_frame(self.read(table, columns), {"run": self.slug, "scheme": self.scheme})

    def _note(self, complaint: str | None) -> None:
        if complaint and complaint not in self.damage:
            self.damage.append(complaint)

    def _why_incomplete(self) -> str:
        return str(self.manifest.get("reason") or ("killed or still going" if self.status == "running" else "no reason recorded"))

    def _may_lack(self, table: str) -> bool:
        of_no_use = (table == "evals" and self.workload == "replay") or (table == "links" and self.on_machines)
        return table in frames.OPTIONAL or of_no_use

    def _all_swept(self) -> dict[str, Any]:
        cell = self.manifest.get("cell")
        return cell if isinstance(cell, dict) else {}

    def _swept_workload(self) -> Any:
        return next((self._all_swept()[key] for key in WORKLOAD_FIELDS if key in self._all_swept()), None)


def dig(data: Any, *keys: str) -> Any:
    """Follow keys into nested mappings; None where the path ends early."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data
