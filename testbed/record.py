"""A run's folder: the manifest, and JSON lines turned into Parquet. See docs/results.md for the schema."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.json

Opener = Callable[[str, int], int]  # as of `open`

SCHEMA = 1
TABLES = {
    "steps": "steps-*.jsonl",
    "evals": "evals.jsonl",
    "links": "links.jsonl",
    "events": "events-*.jsonl",
    "background": "background.jsonl",
}
RUNNERS_OWN = ("events-runner.jsonl", "links.jsonl", "background.jsonl", "usage.jsonl")  # in the folder that workers write to as well
BACKGROUND_COUNTS = dict.fromkeys(("received_bytes", "retransmits", "lost_packets"), "Int64")  # null where a protocol has none
TIMES = {"mono_s": "t_s", "openflow_mono_s": "openflow_t_s"}  # the monotonic clock's columns, and their names in Parquet

# Workers and runner record the experiment's time; these columns are in the machine's until `dilation` to this power makes them so.
MACHINE_TIME = {"links": {"rate_bps": 1}, "background": {"goodput_bps": 1, "seconds": -1}}

ASIDE = ".{}.earlier"  # where an attempt is while the next one's folder is made

LINK_COLUMNS = pa.schema(
    [(name, pa.float64()) for name in ("mono_s", "rate_bps", "openflow_mono_s")]
    + [(name, pa.string()) for name in ("link", "source", "target", "queue")]
    + [(name, pa.int64()) for name in ("queue_bytes", "sent_bytes", "sent_packets", "dropped_packets", "overlimits", "backlog_bytes")]
    + [(name, pa.int64()) for name in ("port_tx_bytes", "queue_tx_bytes", "queue_tx_packets")]
)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file so that it is always whole, the old content or the new, whoever else is writing it."""
    with _whole(path) as temporary, temporary.open("w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """Give the name of a file to write, which takes its place once it is whole; several machines may share the folder."""
    temporary = path.with_name(f".{path.name}.{platform.node()}-{os.getpid()}.new")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path, opener: Opener | None = None) -> dict[str, Any] | None:
    """Read a JSON object; None if it is missing or damaged, or the opener refuses what has its name."""
    try:
        with open(path, opener=opener) as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def now() -> str:
    """Return the time as manifests write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class RunFolder:
    """One run's folder while it is being filled."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        """Make the folder anew with a manifest that says `running`."""
        self.path = path
        self.stream = path / "stream"
        self.logs = path / "logs"
        aside = path.with_name(ASIDE.format(path.name))
        if aside.exists():  # left by a kill between the two renames: it goes back to where it came from
            path.mkdir(parents=True, exist_ok=True)
            aside.rename(path / f"earlier-{time.time_ns()}")
        if path.exists():  # an earlier attempt is kept, inside the new one
            path.rename(aside)
        self.stream.mkdir(parents=True)
        for name in RUNNERS_OWN:  # made before there is anybody who could put something else in their place
            (self.stream / name).touch()
        self.logs.mkdir()
        if aside.exists():
            aside.rename(path / "earlier")
        self.manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "status": "running",
            "reason": None,
            "valid": False,
            "invalid_reasons": [],
            **manifest,
        }
        self.save()

    def save(self, **changes: Any) -> None:
        """Update the manifest on disk."""
        self.manifest.update(changes)
        write_json(self.path / "manifest.json", self.manifest)

    def fail(self, reason: str, invalid_reason: str, **marks: bool) -> None:
        """Mark the run as failed, if there is room to."""
        with suppress(OSError):
            self.save(status="failed", valid=False, reason=reason, invalid_reasons=[invalid_reason], finished=now(), **marks)

    def event(self, mono_s: float, kind: str, text: str, data: dict[str, Any] | None = None) -> None:
        """Append an event of the runner's own."""
        with open(self.stream / "events-runner.jsonl", "a", opener=itself) as file:
            file.write(json.dumps({"mono_s": mono_s, "kind": kind, "text": text, "data": data}) + "\n")

    def table(self, name: str) -> pd.DataFrame:
        """Read a table's JSON lines, a last line cut off in mid-write left out."""
        if name == "links":
            return read_links(self.stream / TABLES[name])
        table = pd.DataFrame(self.rows(name))
        return table.astype(BACKGROUND_COUNTS) if name == "background" and not table.empty else table

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a table's rows as they were written."""
        return [row for file in sorted(self.stream.glob(TABLES[name])) for row in read_lines(file)]

    def usage(self) -> list[dict[str, Any]]:
        """Return the snapshots of the emulator's counters."""
        return read_lines(self.stream / "usage.jsonl")

    def workers(self) -> list[dict[str, Any]]:
        """Return what each worker said at its end, in order of rank."""
        files = {int(rank): path for path in self.stream.glob("worker-*.json") if (rank := path.stem.rpartition("-")[2]).isdecimal()}
        return [content for rank in sorted(files) if (content := read_json(files[rank], itself)) is not None]

    def measured_window(self) -> tuple[float, float] | None:
        """Return the monotonic times at which worker 0 began and ended its measured steps."""
        times = {row["kind"]: row["mono_s"] for row in read_lines(self.stream / "events-0.jsonl")}
        if "measured_start" not in times or "measured_end" not in times:
            return None
        return times["measured_start"], times["measured_end"]

    def to_parquet(self, origin_s: float, dilation: float = 1.0) -> None:
        """Write every table with times from `origin_s` on, in the experiment's time: `dilation` of the machine's seconds are one of its."""
        for name in TABLES:
            table = self.table(name)
            if table.empty:  # a replay has no evaluations
                continue
            clocks = [column for column in TIMES if column in table.columns]
            table[clocks] = (table[clocks] - origin_s) / dilation
            for column, power in MACHINE_TIME.get(name, {}).items():
                if column in table.columns:
                    table[column] *= dilation**power
            table = table.rename(columns=TIMES)
            if "t_s" in table.columns:
                table.insert(0, "t_s", table.pop("t_s"))
                table = table.sort_values("t_s", kind="stable", ignore_index=True)
            if name == "events" and "data" in table.columns:
                table["data"] = table["data"].map(json.dumps)
            with _whole(self.path / f"{name}.parquet") as temporary:
                table.to_parquet(temporary, index=False)

    def drop_stream(self) -> None:
        """Remove the JSON lines, once the manifest says `complete`."""
        shutil.rmtree(self.stream)


def itself(path: str, flags: int) -> int:
    """Open a file of a folder that others write to as well (an `opener`): OSError if a link, a pipe or whatever else is in its place."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)  # a pipe that nobody serves holds up nobody
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines; a last line cut off in mid-write is left out, and where no file is, but a link, say, there are none."""
    try:
        with open(path, opener=itself) as file:
            text = file.read()
    except OSError:
        return []
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def read_links(path: Path) -> pd.DataFrame:
    """Read the samples of the queues, of which there may be millions: whatever a row does not tell is null in it."""
    try:
        with open(path, "rb", opener=itself) as file:
            content = file.read()
    except OSError:
        content = b""
    content = content[: content.rfind(b"\n") + 1]
    if not content:
        return pd.DataFrame()
    options = pyarrow.json.ParseOptions(explicit_schema=LINK_COLUMNS, unexpected_field_behavior="ignore")
    try:
        table = pyarrow.json.read_json(pa.BufferReader(content), parse_options=options)
    except pa.ArrowInvalid:  # a damaged line: it alone is left out
        table = pa.Table.from_pylist(read_lines(path), schema=LINK_COLUMNS)
    incomplete = [name for name in table.column_names if pa.types.is_integer(table[name].type) and table[name].null_count]
    return table.to_pandas().astype(dict.fromkeys(incomplete, "Int64"))
