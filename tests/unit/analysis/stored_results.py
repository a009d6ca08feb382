"""Results of real runs, kept in tests/data: see its README."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

DATA = Path(__file__).resolve().parents[2] / "data"
STREAMS = ("steps", "links", "events")  # of a run that never ended


def copy_of(name: str, below: Path) -> Path:
    """Copy a stored experiment to where it may be changed; return its folder."""
    return Path(shutil.copytree(DATA / name, below / name))


def change(path: Path, **changes: Any) -> None:
    """Give a JSON file other values."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def mishaps(below: Path) -> Path:
    """Make a folder in which everything went wrong but one run.

    none is as it should be; netsense was really not faithful; dc2 was killed half-way, and has its stream only; topk-0.1 failed before
    its first step; 3lc never began.
    """
    folder = copy_of("changing", below)
    planned = json.loads((folder / "experiment.json").read_text())["planned"]
    change(folder / "experiment.json", planned=[*planned, "topk-0.1_r1", "3lc_r1"])
    _kill(folder / "dc2_r1")
    shutil.copytree(folder / "none_r1", folder / "topk-0.1_r1", ignore=shutil.ignore_patterns("*.parquet"))
    (folder / "topk-0.1_r1" / "stream").mkdir()
    told = {"scheme": "topk-0.1", "scheme_label": "Top-k 10 %", "run": "topk-0.1_r1", "fidelity": None, "checks": [], "workers": []}
    change(folder / "topk-0.1_r1" / "manifest.json", status="failed", reason="worker 3 ended with code -9", valid=None, **told)
    return folder


def _kill(run: Path) -> None:
    """Leave of a run what one that is killed half-way leaves: a manifest without an end, and JSON lines, the last cut short."""
    change(run / "manifest.json", status="running", valid=None, fidelity=None, checks=[], finished=None)
    (run / "stream").mkdir()
    for table in STREAMS:
        path = run / f"{table}.parquet"
        rows = pd.read_parquet(path).rename(columns={"t_s": "mono_s"})
        half = rows[rows["mono_s"] < rows["mono_s"].max() / 2]
        parts = {f"{table}-{rank}": half[half["rank"] == rank] for rank in half["rank"].unique()} if table == "steps" else {table: half}
        for name, part in parts.items():
            (run / "stream" / f"{name}.jsonl").write_text(part.to_json(orient="records", lines=True) + '{"mono_s": 1')
        path.unlink()
