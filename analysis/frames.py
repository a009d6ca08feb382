"""Read the tables of one run, from Parquet or from the JSON lines of a run that never finished.

Readers never raise on bad data: they return what is there and say in words what is wrong. They return Arrow tables, which
stack without copies: numbers as floats (null where not known), names of which there are few as dictionaries.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
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
LATER: dict[str, tuple[str, ...]] = {  # columns that the first results did not have: their lack is no damage
    "steps": ("overlap_s", "slowdown", "available_bps", "tcp_rtt_s", "tcp_delivery_bps", "tcp_retransmits"),
    "links": ("queue", "overlimits", "port_tx_bytes", "queue_tx_bytes", "queue_tx_packets", "openflow_t_s"),
}
TABLES = tuple(COLUMNS)
STREAM_GLOBS = {
    "steps": "steps-*.jsonl",
    "evals": "evals*.jsonl",
    "links": "links*.jsonl",
    "events": "events*.jsonl",
    "background": "background*.jsonl",
}
MACHINE_TIME = {"links": {"rate_bps": 1}, "background": {"goodput_bps": 1, "seconds": -1}}  # in streams; times dilation to this power
CLOCKS = {"mono_s": "t_s", "openflow_mono_s": "openflow_t_s"}  # of the stream, and their names in Parquet
NAMES = {"link", "source", "target", "queue", "kind", "protocol"}
WORDS = {"text", "data"}
TRUTHS = {"congested", "final"}
Filters = list[tuple[str, str, Any]]  # as of pandas.read_parquet: [("link", "==", "bottleneck")]


def all_columns(table: str) -> list[str]:
    """Return every column that a table may have."""
    return [*COLUMNS[table], *LATER.get(table, ())]


def no_rows(table: str, columns: list[str] | None = None) -> pa.Table:
    """Return the Arrow table with no rows."""
    return _nothing_in(tuple(columns or all_columns(table)))


def check_parquet(path: Path, may_lack: bool = False) -> str | None:
    """Say what is wrong with a Parquet file by its footer alone, which is cheap."""
    if not path.is_file():
        return f"{path.name} is missing"
    try:
        present = set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        return f"{path.name} cannot be read ({_first_line(error)})"
    lacking = [] if may_lack else [column for column in COLUMNS[path.stem] if column not in present]
    return f"{path.name} lacks the column(s) {', '.join(lacking)}" if lacking else None


def most_rows(folder: Path, table: str, from_stream: bool) -> int:
    """Return how many rows a run's table can have, without reading it: the footer's number, or the lines of the stream."""
    if from_stream:
        return sum(path.read_bytes().count(b"\n") + 1 for path in (folder / "stream").glob(STREAM_GLOBS[table]))
    path = folder / f"{table}.parquet"
    return 0 if check_parquet(path, may_lack=True) else int(pq.read_metadata(path).num_rows)


def parquet_table(path: Path, columns: list[str] | None = None, filters: Filters | None = None) -> tuple[pa.Table, str | None]:
    """Read a table, or some of its columns and rows; on damage return it empty, with the complaint."""
    columns = columns or all_columns(path.stem)
    if not path.is_file():
        return no_rows(path.stem, columns), f"{path.name} is missing"
    try:
        wanted = {*columns, *(name for name, _, _ in filters or [])}
        present = [name for name in pq.read_schema(path).names if name in wanted]
        names = [name for name in present if name in NAMES]
        if filters:
            table = pq.read_table(path, columns=present, filters=filters, read_dictionary=names, partitioning=None)
        else:  # the same, without what reading a part of it needs to be planned: a sweep has hundreds of small ones
            with pq.ParquetFile(path, read_dictionary=names) as file:
                table = file.read(present)
        return _canonical(table, columns), None
    except (OSError, ValueError, pa.ArrowException) as error:
        return no_rows(path.stem, columns), f"{path.name} cannot be read ({_first_line(error)})"


def stream_table(
    folder: Path, table: str, columns: list[str] | None = None, filters: Filters | None = None, dilation: float = 1.0
) -> tuple[pa.Table, list[str]]:
    """Read one table from JSON lines and move it to the clock of worker 0's first step, in the experiment's time."""
    frame, complaints = _quick_links(folder) if table == "links" else None, list[str]()
    if frame is None:
        rows, complaints = _rows(folder, STREAM_GLOBS[table])
        frame = pd.DataFrame(rows)
    if frame.empty:
        return no_rows(table, columns), complaints
    start_s = _start_mono_s(folder)
    for clock, name in CLOCKS.items():
        if clock in frame:
            frame[name] = (pd.to_numeric(frame[clock], errors="coerce") - start_s) / dilation
    for column, power in MACHINE_TIME.get(table, {}).items():
        if column in frame:
            frame[column] = pd.to_numeric(frame[column], errors="coerce") * dilation**power
    if "data" in frame:
        frame["data"] = [value if isinstance(value, str) else json.dumps(value) for value in frame["data"]]
    read = {name: _array(frame[name], name) for name in all_columns(table) if name in frame}
    whole = _canonical(pa.table(read), all_columns(table)).sort_by("t_s")
    if filters:
        whole = whole.filter(pq.filters_to_expression(filters))
    return whole.select(columns or all_columns(table)), complaints


def to_frame(table: pa.Table, context: dict[str, Any] | None = None) -> pd.DataFrame:
    """Turn an Arrow table into a frame, behind the given columns: names as categories, null as NaN, all of it writable."""
    columns = {**(context or {}), **{name: values_of(table[name], name) for name in table.column_names}}
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)


def values_of(column: pa.ChunkedArray, name: str) -> Any:
    """Turn one column into what a frame holds: an array of numbers or truths, categories, words."""
    if name == "final":
        return column.fill_null(False).to_pandas().to_numpy(dtype=bool, copy=True)
    if name in TRUTHS:
        return column.to_pandas(types_mapper={pa.bool_(): pd.BooleanDtype()}.get).array
    values = column.to_pandas()
    return values.array if name in NAMES | WORDS else np.require(values.to_numpy(), requirements="W")


@cache
def _nothing_in(columns: tuple[str, ...]) -> pa.Table:
    return _canonical(pa.table({}), list(columns))


def _canonical(table: pa.Table, columns: list[str]) -> pa.Table:
    """Give a table exactly these columns, each of its type; what is not there is null."""
    held = {name: table[name] if name in table.column_names else pa.nulls(len(table)) for name in columns}
    return pa.table({name: _cast(column, name) for name, column in held.items()})


def _cast(column: pa.ChunkedArray | pa.Array, name: str) -> pa.ChunkedArray | pa.Array:
    if name in NAMES:
        return column.cast(pa.dictionary(pa.int32(), pa.string()))
    wanted = pa.string() if name in WORDS else pa.bool_() if name in TRUTHS else pa.float64()
    if column.type == wanted:
        return column
    try:
        return pc.cast(column, wanted, safe=False)  # integers above 2**53 lose their last digits
    except pa.ArrowException:
        return _array(column.to_pandas(), name)


def _array(values: pd.Series, name: str) -> pa.Array:
    """Turn whatever JSON held into one type; null where it cannot be."""
    if name in NAMES | WORDS:
        return pa.array(values.map(str, na_action="ignore").astype(object), pa.string(), from_pandas=True)
    if name in TRUTHS:
        return pa.array([value if isinstance(value, bool) else None for value in values], pa.bool_())
    return pa.array(pd.to_numeric(values, errors="coerce").astype(float), pa.float64(), from_pandas=True)


def _quick_links(folder: Path) -> pd.DataFrame | None:
    """Parse the samples of the queues, of which there may be millions, without a step of Python a row; None if a line is damaged."""
    content = b"".join(text[: text.rfind(b"\n") + 1] for path in sorted(folder.glob(STREAM_GLOBS["links"])) if (text := path.read_bytes()))
    try:
        table = pa.json.read_json(pa.BufferReader(content))
        return None if table["mono_s"].null_count else table.to_pandas()
    except (KeyError, pa.ArrowException):
        return None


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


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:160]
