"""Write small results folders whose numbers can be worked out by hand.

Every worker trains on 32 samples a step, there are 4 of them, and a step takes exactly `step_s`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import frames

WORKERS = 4
BATCH = 32
DENSE_BYTES = 400_000
MONO_START_S = 5000.0  # the monotonic clock when worker 0 begins its first step
QUEUE_BYTES = 50_000
RATE_BPS = 40e6


@dataclass(frozen=True)
class FakeRun:
    scheme: str
    step_s: float = 0.25
    bytes_sent: int = 600_000
    steps: int = 20
    workload: str = "train"
    accuracies: tuple[float, ...] = (0.5, 0.8, 0.9)  # evaluated at a third, two thirds and the end
    peak_bytes: int = 40_000  # the bottleneck's backlog saws between 0 and this
    link_samples: int = 200
    status: str = "complete"
    invalid_reasons: tuple[str, ...] = ()
    cell: dict[str, Any] = field(default_factory=dict)
    repeat: int = 0
    changes: tuple[tuple[float, dict[str, Any]], ...] = ()  # when a link was changed, and the data of the event
    manifest: dict[str, Any] = field(default_factory=dict)  # overrides

    @property
    def slug(self) -> str:
        cell = "".join(f"-{str(value).replace('.', '_')}" for value in self.cell.values())
        return f"{self.scheme}-{self.workload}{cell}-{self.repeat}"


def write_experiment(folder: Path, runs: list[FakeRun], also_planned: tuple[str, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    planned = [run.slug for run in runs] + list(also_planned)
    experiment = {"schema": 1, "name": folder.name, "spec": {}, "planned": planned, "command": ["testbed", "run", "quick.yaml"]}
    (folder / "experiment.json").write_text(json.dumps(experiment))
    for run in runs:
        write_run(folder / run.slug, run)
    return folder


def write_run(folder: Path, run: FakeRun) -> None:
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest(run)))
    tables = {"steps": steps(run), "evals": evals(run), "links": links(run), "events": events(run)}
    if run.status == "complete":
        for name, rows in tables.items():
            pd.DataFrame(rows, columns=list(rows[0]) if rows else EVAL_COLUMNS).to_parquet(folder / f"{name}.parquet")
        return
    stream = folder / "stream"
    stream.mkdir()
    for rank in range(WORKERS):
        _lines(stream / f"steps-{rank}.jsonl", [row for row in tables["steps"] if row["rank"] == rank])
    _lines(stream / "evals.jsonl", tables["evals"])
    _lines(stream / "links.jsonl", tables["links"])
    _lines(stream / "events-runner.jsonl", tables["events"])


EVAL_COLUMNS = ["step", "t_s", "train_s", "accuracy", "loss", "samples", "final"]


def manifest(run: FakeRun) -> dict[str, Any]:
    way = {"rate_bps": RATE_BPS, "delay_s": 0.005, "jitter_s": 0, "loss": 0, "queue_bytes": QUEUE_BYTES}
    hosts = [f"h{rank + 1}" for rank in range(WORKERS)]
    access = [{"name": f"access-{host}", "a": host, "b": "s1", "bottleneck": False, "forward": way, "backward": way} for host in hosts]
    middle = {"name": "bottleneck", "a": "s1", "b": "s2", "bottleneck": True, "forward": way, "backward": way}
    complete = run.status == "complete"
    return {
        "schema": 1,
        "status": run.status,
        "reason": None,
        "valid": complete and not run.invalid_reasons,
        "invalid_reasons": list(run.invalid_reasons),
        "experiment": "quick",
        "run": run.slug,
        "scheme": run.scheme,
        "scheme_label": run.scheme.upper() if run.scheme != "none" else "No compression",
        "cell": {"workload": run.workload, **run.cell},
        "repeat": run.repeat,
        "spec": {
            "workload": {"kind": run.workload, "batch_size": BATCH, "target_accuracy": None},
            "topology": {"kind": "dumbbell", "workers": WORKERS},
        },
        "substituted": ["userspace datapath for the kernel's"],
        "network": {"hosts": hosts, "switches": ["s1", "s2"], "mtu": 1500, "links": [middle, *access]},
        "fidelity": {"value": 0.997 if complete else None, "coverage": 0.4, "worst_second": 0.985, "directions": {}},
        "compute_inflation": 1.05 if complete else None,
        "workers": [{"rank": rank, "quiet_compute_s": 0.05} for rank in range(WORKERS)],
        "prediction": {"step_s": 0.9 * run.step_s},
        "shared_machine": False,
        "forced": False,
        **run.manifest,
    }


def steps(run: FakeRun) -> list[dict[str, Any]]:
    rows = []
    for step in range(run.steps):
        for rank in range(WORKERS):
            rows.append(
                {
                    "step": step,
                    "rank": rank,
                    "t_s": step * run.step_s,
                    "train_s": (step + 1) * run.step_s,
                    "step_s": run.step_s,
                    "compute_s": 0.2 * run.step_s,
                    "encode_s": 0.1 * run.step_s,
                    "exchange_s": 0.65 * run.step_s,
                    "decode_s": 0.05 * run.step_s,
                    "samples": BATCH,
                    "bytes_sent": run.bytes_sent,
                    "bytes_received": run.bytes_sent,
                    "wire_bytes_sent": int(run.bytes_sent * 1.1),
                    "wire_bytes_received": int(run.bytes_sent * 1.1),
                    "dense_bytes": DENSE_BYTES,
                    "ratio": 1.0,
                    "btlbw_bps": None,
                    "rtprop_s": None,
                    "bdp_bytes": None,
                    "congested": None,
                    "loss": 1.0,
                }
            )
    return rows


def evals(run: FakeRun) -> list[dict[str, Any]]:
    if run.workload == "replay":
        return []
    rows = []
    for index, accuracy in enumerate(run.accuracies):
        done = (index + 1) * run.steps // len(run.accuracies)
        final = index == len(run.accuracies) - 1 and run.status == "complete"
        time_s = done * run.step_s
        rows.append({"step": done, "t_s": time_s, "train_s": time_s, "accuracy": accuracy, "loss": 1.0, "samples": 1000, "final": final})
    return rows


def links(run: FakeRun) -> list[dict[str, Any]]:
    rows = []
    length_s = run.steps * run.step_s
    for index in range(-5, run.link_samples):
        for source, target, share in (("s1", "s2", 1.0), ("s2", "s1", 0.5)):
            backlog = share * run.peak_bytes * (index % 10) / 9 if index >= 0 else 49_999
            rows.append(
                {
                    "t_s": index * length_s / max(1, run.link_samples),
                    "link": "bottleneck",
                    "source": source,
                    "target": target,
                    "sent_bytes": 1000 * index,
                    "sent_packets": index,
                    "dropped_packets": 0,
                    "backlog_bytes": backlog,
                    "rate_bps": RATE_BPS,
                    "queue_bytes": QUEUE_BYTES,
                }
            )
    return rows


def events(run: FakeRun) -> list[dict[str, Any]]:
    changed = [{"t_s": t_s, "kind": "link_changed", "text": "a change", "data": json.dumps(data)} for t_s, data in run.changes]
    return [{"t_s": -1.0, "kind": "start", "text": "workers started", "data": "{}"}, *changed]


def empty(table: str) -> pd.DataFrame:
    """Return a table of a run as it is read, without rows."""
    return frames.to_frame(frames.no_rows(table))


def rewrite(folder: Path, table: str, **columns: Any) -> None:
    """Give a complete run's table other values: numbers, or functions of the table."""
    path = folder / f"{table}.parquet"
    pd.read_parquet(path).assign(**columns).to_parquet(path)


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the stream form: `mono_s` for `t_s`, and a last line cut short."""
    whole = [{"mono_s": MONO_START_S + row["t_s"], **{key: value for key, value in row.items() if key != "t_s"}} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in whole) + '{"mono_s": 5')
