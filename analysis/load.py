"""Open a results folder: the experiment, its runs, what is missing and what is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import frames
from analysis.errors import ResultsError

SCHEMA = 1  # newest layout this code reads
WORKLOAD_FIELDS = ("workload", "workload.kind")  # sweeping these gives bars side by side, not another facet


@dataclass(frozen=True)
class Run:
    """One run of the experiment; its tables are read when first asked for."""

    folder: Path
    manifest: dict[str, Any]
    damage: list[str] = field(default_factory=list)  # what could not be read, in words

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
    def cell(self) -> dict[str, Any]:
        """Return the swept fields and their values, but for the workload."""
        return {key: value for key, value in self._all_swept().items() if key not in WORKLOAD_FIELDS}

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
    def dilation(self) -> float:
        """Return how many of the machine's seconds were one of the experiment's, in which everything is told."""
        value = self.manifest.get("dilation")
        return float(value) if isinstance(value, int | float) and value > 0 else 1.0

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
        return self._read("steps")

    @cached_property
    def evals(self) -> pd.DataFrame:
        """Return the evaluations."""
        return self._read("evals")

    @property
    def links(self) -> pd.DataFrame:
        """Return the link samples; read anew each time, as these are the large ones and a sweep has many."""
        return self._read("links")

    @cached_property
    def events(self) -> pd.DataFrame:
        """Return the events."""
        return self._read("events")

    @cached_property
    def background(self) -> pd.DataFrame:
        """Return what background traffic delivered; empty for a run without."""
        return self._read("background")

    def check(self) -> None:
        """Note damage that shows without reading the tables."""
        if self.manifest.get("status") == "complete":
            for table in frames.TABLES:
                path = self.folder / f"{table}.parquet"
                if path.exists() or not self._may_lack(table):
                    self._note(frames.check_parquet(path))
        elif not (self.folder / "stream").is_dir() and not (self.folder / "steps.parquet").exists():
            self._note("nothing was recorded: neither stream/ nor steps.parquet is there")

    def _read(self, table: str) -> pd.DataFrame:
        """Read Parquet if the run completed, else the stream, which stays until all Parquet files are written."""
        stream, path = self.folder / "stream", self.folder / f"{table}.parquet"
        if self.manifest.get("status") != "complete" and stream.is_dir():
            frame, complaints = frames.read_stream(stream, table, self.dilation)
            for text in complaints:
                self._note(text)
        elif not path.exists() and (self._may_lack(table) or self.manifest.get("status") != "complete"):
            frame = frames.empty(table)
        else:
            frame, complaint = frames.read_parquet(path)
            self._note(complaint)
        frame.insert(0, "run", self.slug)
        frame.insert(1, "scheme", self.scheme)
        return frame

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


@dataclass(frozen=True)
class Results:
    """An experiment's folder. `runs` are in planned order; what is not there is in `missing` and `problems`."""

    folder: Path
    name: str
    spec: dict[str, Any]
    planned: list[str]
    command: Any
    runs: list[Run]
    unreadable: list[str]  # slugs of runs whose manifest cannot be read
    complaints: list[str]  # about the experiment and the unreadable runs; see `problems`

    @property
    def missing(self) -> list[str]:
        """Return the planned runs that have no folder."""
        return [slug for slug in self.planned if not (self.folder / slug).is_dir()]

    @property
    def incomplete(self) -> list[Run]:
        """Return the runs that did not complete."""
        return [run for run in self.runs if not run.complete]

    @property
    def problems(self) -> list[str]:
        """Return everything that could not be read, a sentence each; grows as tables are read."""
        return self.complaints + [f"run {run.slug}: {text}" for run in self.runs for text in run.damage]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Return the distinct cells in order of appearance; one empty cell when nothing is swept."""
        return list({run.cell_key: run.cell for run in self.runs}.values())

    @property
    def schemes(self) -> dict[str, str]:
        """Return slug and label of each scheme, in order of appearance."""
        return {run.scheme: run.label for run in self.runs}

    @property
    def workloads(self) -> list[str]:
        """Return the kinds of workload present, training first."""
        return sorted({run.workload for run in self.runs}, key=lambda kind: (kind != "train", kind))

    @property
    def steps(self) -> pd.DataFrame:
        """Return the steps of all runs."""
        return _concat(run.steps for run in self.runs)

    @property
    def evals(self) -> pd.DataFrame:
        """Return the evaluations of all runs."""
        return _concat(run.evals for run in self.runs)

    @property
    def links(self) -> pd.DataFrame:
        """Return the link samples of all runs; may be large."""
        return _concat(run.links for run in self.runs)

    @property
    def events(self) -> pd.DataFrame:
        """Return the events of all runs."""
        return _concat(run.events for run in self.runs)


def load(folder: Path | str) -> Results:
    """Open a results folder; raise ResultsError only if nothing in it can be used."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder. Give the results folder of an experiment, such as results/quick.")
    if (folder / "manifest.json").is_file():
        raise ResultsError(f"{folder} is one run. Give the experiment's folder, {folder.resolve().parent}.")
    experiment, complaints = _read_experiment(folder)
    planned = [slug for slug in experiment.get("planned") or [] if isinstance(slug, str)]
    others = sorted(path.parent.name for path in folder.glob("*/manifest.json") if path.parent.name not in planned)

    runs: list[Run] = []
    unreadable: list[str] = []
    for slug in dict.fromkeys(planned + others):
        if not (folder / slug).is_dir():
            continue
        manifest, complaint = _read_manifest(folder / slug / "manifest.json")
        if complaint:
            unreadable.append(slug)
            complaints.append(f"run {slug}: {complaint}")
            continue
        run = Run(folder / slug, manifest)
        run.check()
        runs.append(run)
    if not runs:
        raise ResultsError(_nothing(folder, planned, complaints))
    return Results(
        folder=folder,
        name=str(experiment.get("name") or runs[0].manifest.get("experiment") or folder.name),
        spec=experiment.get("spec") or {},
        planned=planned,
        command=experiment.get("command"),
        runs=runs,
        unreadable=unreadable,
        complaints=complaints,
    )


def dig(data: Any, *keys: str) -> Any:
    """Follow keys into nested mappings; None where the path ends early."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _read_experiment(folder: Path) -> tuple[dict[str, Any], list[str]]:
    path = folder / "experiment.json"
    if not path.exists():
        return {}, [] if not any(folder.glob("*/manifest.json")) else ["experiment.json is missing, so planned runs are unknown"]
    experiment, complaint = _read_json(path)
    if complaint:
        return {}, [f"{complaint}, so planned runs are unknown"]
    schema = experiment.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ResultsError(
            f"{folder} has schema {schema}; this testbed reads up to {SCHEMA}. Update the testbed, or read it with the newer one."
        )
    return experiment, []


def _read_manifest(path: Path) -> tuple[dict[str, Any], str | None]:
    manifest, complaint = _read_json(path)
    if complaint:
        return {}, complaint
    schema = manifest.get("schema")
    if not isinstance(schema, int):
        return {}, f"{path.name} names no schema"
    if schema > SCHEMA:
        return {}, f"schema {schema} is newer than this testbed reads ({SCHEMA}); update the testbed"
    return manifest, None


def _read_json(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}, f"{path.name} is missing"
    except (OSError, ValueError) as error:
        return {}, f"{path.name} cannot be read ({error})"
    return (data, None) if isinstance(data, dict) else ({}, f"{path.name} does not hold an object")


def _nothing(folder: Path, planned: list[str], complaints: list[str]) -> str:
    if complaints:
        return f"No run in {folder} can be read: {'; '.join(complaints)}. Run the experiment again."
    if planned:
        return f"None of the {len(planned)} planned runs of {folder} has started. Run the experiment first: testbed run."
    return f"{folder} holds no results. Run an experiment first (testbed run), or give another folder."


def _concat(tables: Iterator[pd.DataFrame]) -> pd.DataFrame:
    """Stack tables, leaving out empty ones, whose dtypes would spoil the others'."""
    parts = list(tables)
    full = [part for part in parts if not part.empty]
    return pd.concat(full, ignore_index=True) if full else parts[0]
