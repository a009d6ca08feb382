"""Read the traces that a link can follow: every fault is told with its line in the trace.

CSV: a header of `t` and one or more of `rate`, `delay` and `loss`, then rows in the order of time, at least 10 ms apart. `t` counts
seconds from where the trace begins; a row holds until the next, an empty cell leaves its quantity as it was, and blank lines and lines
that begin with # are passed over. A number without a unit is SI (bit/s, seconds, a fraction); with one it is read as in an experiment
file: 10mbit, 20ms, 1%. A rate may be 0 (nothing passes) or `unlimited`. A trace that loops starts again when its last row has held as
long as the one before it.

Mahimahi: each line is a whole millisecond at which one packet of 1500 bytes may pass, the same time again for each further packet;
the trace starts again at its last time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from testbed import units
from testbed.spec.errors import suggestion
from testbed.spec.fields import Faults, Place

UNLIMITED: Final = "unlimited"
RateValue = float | Literal["unlimited"]
COLUMNS = ["t", "rate", "delay", "loss"]
SHORTEST_S = 0.01  # between changes: one takes about as long
LONGEST_MS = 2 * 3600 * 1000  # of a Mahimahi trace
TOLD_AT_MOST = 5  # faults of one trace; the rest are counted

LineFault = tuple[int, str]  # 0: the trace as a whole


@dataclass(frozen=True)
class Row:
    """What holds from a time of the trace on; None: as before."""

    t_s: float
    rate_bps: RateValue | None = None
    delay_s: float | None = None
    loss: float | None = None


@dataclass(frozen=True)
class Table:
    """A CSV trace."""

    file: str  # as the experiment names it
    sha256: str
    rows: tuple[Row, ...] = field(repr=False)

    @property
    def period_s(self) -> float:
        """Return after how long a loop starts again: the last row holds as long as the one before it."""
        times_s = [row.t_s for row in self.rows]
        return 2 * times_s[-1] - times_s[-2] if len(times_s) > 1 else times_s[-1]


@dataclass(frozen=True)
class Opportunities:
    """A Mahimahi trace: when a packet may pass."""

    file: str  # as the experiment names it
    sha256: str
    times_ms: tuple[int, ...] = field(repr=False)


def read_table(file: str, folder: Path) -> Table:
    """Read a CSV trace, named relative to a folder; Faults if anything is wrong with it."""
    return Table(file, *_read(file, folder, parse_table))


def read_opportunities(file: str, folder: Path) -> Opportunities:
    """Read a Mahimahi trace, named relative to a folder; Faults if anything is wrong with it."""
    return Opportunities(file, *_read(file, folder, parse_opportunities))


def parse_table(text: str) -> tuple[tuple[Row, ...], list[LineFault]]:
    """Return the rows of a CSV trace, and what is wrong with it."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return (), [(0, f"is empty; a trace begins with a header such as {','.join(COLUMNS)}")]
    number, header = lines[0]
    columns = [name.strip() for name in header.split(",")]
    faults = [(number, fault) for fault in _header_faults(columns)]
    if faults:
        return (), faults
    if not lines[1:]:
        return (), [(number, "has a header and no rows")]
    rows: list[Row] = []
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(columns):
            faults.append((number, f"has {_plural(len(cells), 'cell')}, and the header {len(columns)}"))
            continue
        values, wrong = _values(dict(zip(columns, cells, strict=True)))
        faults += [(number, fault) for fault in wrong]
        if "t_s" not in values:
            continue
        if rows and values["t_s"] <= rows[-1].t_s:
            faults.append((number, f"time {values['t_s']:g} does not come after {rows[-1].t_s:g}; times must rise"))
        elif rows and values["t_s"] < rows[-1].t_s + SHORTEST_S - 1e-9:
            faults.append((number, f"time {values['t_s']:g} comes less than {units.format_time(SHORTEST_S)} after {rows[-1].t_s:g}"))
        else:
            rows.append(Row(**values))
    return tuple(rows), faults


def parse_opportunities(text: str) -> tuple[tuple[int, ...], list[LineFault]]:
    """Return the times of a Mahimahi trace in milliseconds, and what is wrong with it."""
    lines = text.rstrip().splitlines()
    if not lines:
        return (), [(0, "is empty; a Mahimahi trace has one time in whole milliseconds a line")]
    times_ms: list[int] = []
    faults: list[LineFault] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            faults.append((number, "has no time"))
        for word in line.split():
            if not re.fullmatch(r"[+-]?[0-9]{1,12}", word):
                faults.append((number, f"'{word[:40]}' is not a time in whole milliseconds"))
            elif int(word) > LONGEST_MS:
                faults.append((number, f"time {word} is too late; a trace may last {LONGEST_MS} ms"))
            elif int(word) < 0:
                faults.append((number, f"time {word} is negative"))
            elif times_ms and int(word) < times_ms[-1]:
                faults.append((number, f"time {word} comes after {times_ms[-1]}; times must not fall"))
            else:
                times_ms.append(int(word))
    if not faults and times_ms[-1] == 0:
        faults.append((len(lines), "ends at 0 ms; a trace must last for some time"))
    return tuple(times_ms), faults


def _header_faults(columns: list[str]) -> list[str]:
    faults = [f"unknown column '{name}'; {suggestion(name, COLUMNS)}" for name in columns if name not in COLUMNS]
    faults += [f"column '{name}' is there twice" for name in COLUMNS if columns.count(name) > 1]
    if "t" not in columns:
        faults.append("has no column t, the time in seconds")
    if not faults and columns == ["t"]:
        faults.append("changes nothing; add one or more of the columns rate, delay and loss")
    return faults


def _values(cells: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a row, and what is wrong with its cells."""
    values: dict[str, Any] = {}
    faults = []
    for column, text in cells.items():
        name, parse = _CELLS[column]
        if not text and column == "t":
            faults.append("has no time")
        elif text:
            try:
                values[name] = parse(text)
            except ValueError as error:
                faults.append(f"{column}: {error}")
    return values, faults


def _with_unit(text: str, unit: str) -> str:
    return text + unit if text[-1] in "0123456789." else text


def _rate(text: str) -> RateValue:
    return UNLIMITED if text == UNLIMITED else units.parse_rate(_with_unit(text, "bit"))


def _loss(text: str) -> float:
    if (fraction := units.parse_fraction(text)) >= 1:
        raise ValueError(f"must be below 1 (all frames lost); {units.FRACTION_FORMS}")
    return fraction


_CELLS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "t": ("t_s", units.parse_seconds),
    "rate": ("rate_bps", _rate),
    "delay": ("delay_s", lambda text: units.parse_time(_with_unit(text, "s"))),
    "loss": ("loss", _loss),
}


def _read(file: str, folder: Path, parse: Callable[[str], tuple[Any, list[LineFault]]]) -> tuple[str, Any]:
    """Return a file's hash and what it holds."""
    path = folder / file
    try:
        if path.exists() and not path.is_file():
            raise Faults([((), f"{file} is not a file")])
        status = path.stat()
        sha256, found, faults = _parsed(path, status.st_mtime_ns, status.st_size, parse)
    except OSError as error:
        raise Faults([((), f"{file} cannot be read: {(error.strerror or str(error)).lower()}")]) from error
    except UnicodeDecodeError as error:
        raise Faults([((), f"{file} cannot be read: it is not UTF-8 text")]) from error
    if faults:
        told: list[tuple[Place, str]] = [
            ((), f"{file}:{line}: {message}" if line else f"{file} {message}") for line, message in faults[:TOLD_AT_MOST]
        ]
        if len(faults) > TOLD_AT_MOST:
            told.append(((), f"{file}: and {len(faults) - TOLD_AT_MOST} more faults"))
        raise Faults(told)
    return sha256, found


@lru_cache(maxsize=32)
def _parsed(path: Path, mtime_ns: int, size: int, parse: Callable[[str], tuple[Any, list[LineFault]]]) -> tuple[str, Any, list[LineFault]]:
    """Read a file once, however many cells of a sweep use it, and again if it changes."""
    content = path.read_bytes()
    return hashlib.sha256(content).hexdigest(), *parse(content.decode("utf-8-sig"))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
