"""Read the tables of one run, from Parquet or from the JSON lines of a run that never finished.

Readers never raise on bad data: they return what is there and say in words what is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS: dict[str, tuple[str, ...]] = {
    "steps": (
        *("step", "rank", "t_s", "train_s", "step_s", "compute_s", "encode_s", "exchange_s", "decode_s", "samples"),
        *("bytes_sent", "bytes_received", "wire_bytes_sent", "wire_bytes_received", "dense_bytes", "ratio"),
        *("btlbw_bps", "rtprop_s", "bdp_bytes", "congested", "loss"),
    ),
    "evals": ("step", "t_s", "train_s", "accuracy", "loss", "samples", "final"),
    "links": (
        *("t_s", "link", "source", "target", "sent_bytes", "sent_packets", "dropped_packets"),
        *("backlog_bytes", "rate_bps", "queue_bytes"),
    ),
    "events": ("t_s", "kind", "text", "data"),
    "background": (
        *("t_s", "seconds", "entry", "source", "target", "protocol", "flows"),
        *("received_bytes", "goodput_bps", "retransmits", "lost_packets"),
    ),
}
OPTIONAL = {"background"}  # tables that a run may lack
TABLES = tuple(COLUMNS)
STREAM_GLOBS = {
    "steps": "steps-*.jsonl",
    "evals": "evals*.jsonl",
    "links": "links*.jsonl",
    "events": "events*.jsonl",
    "background": "background*.jsonl",
}
MACHINE_TIME = {"links": {"rate_bps": 1}, "background": {"goodput_bps": 1, "seconds": -1}}  # in streams; times dilation to this power
NOT_NUMBERS = {"link", "source", "target", "protocol", "kind", "text", "data", "congested", "final"}


def empty(table: str) -> pd.DataFrame:
    """Return the table with no rows."""
    return _normalise(pd.DataFrame(columns=list(COLUMNS[table])), table)


def check_parquet(path: Path) -> str | None:
    """Say what is wrong with a Parquet file by its footer alone, which is cheap."""
    if not path.is_file():
        return f"{path.name} is missing"
    try:
        present = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        return f"{path.name} cannot be read ({_first_line(error)})"
    lacking = [column for column in COLUMNS[path.stem] if column not in present]
    return f"{path.name} lacks the column(s) {', '.join(lacking)}" if lacking else None


def read_parquet(path: Path) -> tuple[pd.DataFrame, str | None]:
    """Read one table; on damage return it empty, with the complaint."""
    if complaint := check_parquet(path):
        return empty(path.stem), complaint
    try:
        return _normalise(pd.read_parquet(path), path.stem), None
    except (OSError, ValueError, pa.ArrowException) as error:
        return empty(path.stem), f"{path.name} cannot be read ({_first_line(error)})"


def read_stream(folder: Path, table: str, dilation: float = 1.0) -> tuple[pd.DataFrame, list[str]]:
    """Read one table from JSON lines and move it to the clock of worker 0's first step, in the experiment's time."""
    rows, complaints = _rows(folder, STREAM_GLOBS[table])
    if not rows:
        return empty(table), complaints
    frame = pd.DataFrame(rows)
    if "data" in frame:
        frame["data"] = [value if isinstance(value, str) else json.dumps(value) for value in frame["data"]]
    frame["t_s"] = (pd.to_numeric(frame["mono_s"], errors="coerce") - _start_mono_s(folder)) / dilation
    for column, power in MACHINE_TIME.get(table, {}).items():
        if column in frame:
            frame[column] = pd.to_numeric(frame[column], errors="coerce") * dilation**power
    return _normalise(frame, table).sort_values("t_s", kind="stable", ignore_index=True), complaints


def _start_mono_s(folder: Path) -> float:
    """Return when worker 0 began its first step; before any step, the last thing recorded (all of it is set-up then)."""
    first, _ = _rows(folder, "steps-0.jsonl")
    if first:
        return float(min(row["mono_s"] for row in first))
    stamps = [row["mono_s"] for pattern in STREAM_GLOBS.values() for row in _rows(folder, pattern)[0]]
    return float(max(stamps, default=0.0))


def _rows(folder: Path, pattern: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Parse JSON lines; a last line cut short by a kill is expected, any other bad line is a complaint."""
    rows: list[dict[str, Any]] = []
    complaints: list[str] = []
    for path in sorted(folder.glob(pattern)):
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            complaints.append(f"stream/{path.name} cannot be read ({_first_line(error)})")
            continue
        bad = 0
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                if not isinstance(row["mono_s"], int | float):
                    raise TypeError("mono_s is not a number")
                rows.append(row)
            except (ValueError, KeyError, TypeError):
                bad += number < len(lines)
        if bad:
            complaints.append(f"stream/{path.name} has {bad} unreadable line(s), left out")
    return rows, complaints


def _normalise(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Give the table exactly its columns: numbers as numbers, null as NaN, `final` as a plain truth value."""
    frame = frame.reindex(columns=list(COLUMNS[table]))
    for column in frame.columns:
        if column not in NOT_NUMBERS:
            frame[column] = pd.to_numeric(frame[column], errors="coerce").astype(float)
    if table == "evals":
        frame["final"] = frame["final"].eq(True).fillna(False).astype(bool)
    return frame


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:160]
