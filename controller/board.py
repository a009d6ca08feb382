"""The board: one memory-mapped file at which sampler, controller, runner and readers of a run meet.

One record a queue, in five parts that each have one writer: the configured rate, the delay behind it, the ring hops that cross it, its
counters and OpenFlow's. A part is kept twice: its writer fills the copy that nobody reads and then raises the part's version, whose
last bit names the copy to read. So a reader never waits for a writer that was held up or killed, sees whole parts only, and tries
again only if a write was completed meanwhile. A checksum over version and content makes it hold where stores are seen out of order.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, TypeVar
from zlib import crc32

HOP_BITS = 256
NOT_COUNTED = (1 << 64) - 1  # what a switch answers for a counter that it does not keep; on the board it means the same

_MAGIC = b"NSBOARD2"
_HEADER = Struct("=8sII")  # magic, number of records, length of the description that follows
_CHECKSUM = Struct("=I")
_WORD = 0xFFFFFFFF
_VERSION_BYTES = 8
_LINE_BYTES = 64  # parts of different writers share no cache line
_ATTEMPTS = 10_000  # a reader that lost to the writer this often is reading garbage


class BoardError(RuntimeError):
    """A file is not a whole board, or cannot be used as asked."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """What a queue is and where; nothing of it changes during a run."""

    name: str  # the direction's, and the queue's if it has several: bottleneck:s1->s2/training
    link: str
    source: str
    target: str
    queue: str  # class; "" where the direction has one queue
    queue_bytes: int
    delay_s: float  # when the run began
    bottleneck: bool


@dataclass(frozen=True, slots=True)
class QueueReading:
    """A queue's counters at one moment, by netlink."""

    mono_s: float
    sent_bytes: int
    sent_packets: int
    backlog_bytes: int
    queued_packets: int
    dropped_packets: int
    overlimits: int
    rate_bps: float  # sent over about the last 100 ms
    drops_per_s: float


@dataclass(frozen=True, slots=True)
class OpenFlowReading:
    """What the switch counted at one moment, for the queue and for its port; None: it does not count that."""

    mono_s: float
    port_tx_bytes: int | None
    port_tx_packets: int | None
    port_tx_dropped: int | None
    port_rx_bytes: int | None
    queue_tx_bytes: int | None
    queue_tx_packets: int | None
    queue_tx_errors: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """All that is known of one queue."""

    info: QueueInfo
    configured_bps: float
    delay_s: float  # one way, now
    hops: int  # bit i: the ring hop from worker i to the next crosses this queue
    queue: QueueReading | None  # None: never written
    openflow: OpenFlowReading | None


Value = TypeVar("Value")


class _Kind(Generic[Value]):
    """How one part of a record is laid out."""

    def __init__(self, layout: str, encode: Callable[[Value], tuple[Any, ...]], decode: Callable[..., Value]) -> None:
        self.layout = Struct(layout)
        self.encode = encode
        self.decode = decode
        self.copy_bytes = self.layout.size + _CHECKSUM.size
        lines = -(-(_VERSION_BYTES + 2 * self.copy_bytes) // _LINE_BYTES)
        self.part_bytes = lines * _LINE_BYTES


def _mask(content: bytes) -> int:
    return int.from_bytes(content, "little")


def _openflow_values(reading: OpenFlowReading) -> tuple[Any, ...]:
    return tuple(NOT_COUNTED if value is None else value for value in _OPENFLOW_FIELDS(reading))


def _openflow_reading(mono_s: float, *counts: int) -> OpenFlowReading:
    return OpenFlowReading(mono_s, *(None if count == NOT_COUNTED else count for count in counts))


_OPENFLOW_FIELDS = attrgetter(*(field.name for field in fields(OpenFlowReading)))
_CONFIGURED = _Kind[float]("=d", lambda rate_bps: (rate_bps,), float)
_DELAY = _Kind[float]("=d", lambda delay_s: (delay_s,), float)
_HOPS = _Kind[int](f"={HOP_BITS // 8}s", lambda mask: (mask.to_bytes(HOP_BITS // 8, "little"),), _mask)
_QUEUE = _Kind[QueueReading]("=d6Q2d", attrgetter(*(field.name for field in fields(QueueReading))), QueueReading)
_OPENFLOW = _Kind[OpenFlowReading]("=d7Q", _openflow_values, _openflow_reading)
_RECORD_BYTES = sum(kind.part_bytes for kind in (_CONFIGURED, _DELAY, _HOPS, _QUEUE, _OPENFLOW))


class _Part(Generic[Value]):
    """One part of every queue's record: a version, and the two copies whose turn it tells."""

    def __init__(self, view: memoryview, words: memoryview, kind: _Kind[Value], start: int, count: int) -> None:
        self._view = view
        self._words = words  # the same bytes: a version is read and written as one word
        self._kind = kind
        self._starts = [start + i * kind.part_bytes for i in range(count)]
        self._known: list[tuple[int, Value | None]] = [(0, None)] * count

    def write(self, i: int, value: Value) -> None:
        self.write_values(i, self._kind.encode(value))

    def write_values(self, i: int, values: tuple[Any, ...]) -> None:
        if self._view.readonly:
            raise BoardError("this board is open for reading only")
        word = self._starts[i] // _VERSION_BYTES
        version = self._words[word] + 1
        content = self._kind.layout.pack(*values)
        start = self._copy(i, version)
        self._view[start : start + self._kind.copy_bytes] = content + _CHECKSUM.pack(crc32(content, version & _WORD))
        self._words[word] = version

    def read(self, i: int) -> Value | None:
        """Return the newest value, None before the first; the same object until there is a newer one."""
        word = self._starts[i] // _VERSION_BYTES
        for _ in range(_ATTEMPTS):
            version = self._words[word]
            known, value = self._known[i]
            if version == known:
                return value
            start = self._copy(i, version)
            copy = bytes(self._view[start : start + self._kind.copy_bytes])
            content = copy[: -_CHECKSUM.size]
            whole = _CHECKSUM.unpack_from(copy, len(content))[0] == crc32(content, version & _WORD)
            if whole and self._words[word] == version:
                value = self._kind.decode(*self._kind.layout.unpack(content))
                self._known[i] = (version, value)
                return value
        raise BoardError("the board is damaged: a record does not agree with its checksum")

    def _copy(self, i: int, version: int) -> int:
        return self._starts[i] + _VERSION_BYTES + (version & 1) * self._kind.copy_bytes


class Board:
    """A run's queues, numbered as at the board's creation."""

    def __init__(self, path: Path, mapped: mmap.mmap, infos: Sequence[QueueInfo], start: int) -> None:
        """Use a mapped file whose records begin at `start`; `create` and `open` call this."""
        self.path = path
        self.infos = tuple(infos)
        self._numbers = {info.name: number for number, info in enumerate(self.infos)}
        self._mapped = mapped
        self._view = memoryview(mapped)
        self._words = self._view.cast("Q")

        def part(kind: _Kind[Value]) -> _Part[Value]:
            nonlocal start
            begin, start = start, start + len(self.infos) * kind.part_bytes
            return _Part(self._view, self._words, kind, begin, len(self.infos))

        self._configured, self._delay, self._hops = part(_CONFIGURED), part(_DELAY), part(_HOPS)
        self._queue, self._openflow = part(_QUEUE), part(_OPENFLOW)

    @classmethod
    def create(cls, path: str | Path, infos: Sequence[QueueInfo], configured_bps: Sequence[float]) -> Board:
        """Make a board with nothing on it but the configured rates; it takes the path's place at once and whole."""
        if len({info.name for info in infos}) != len(infos) or len(infos) != len(configured_bps):
            raise BoardError("every queue of a board needs a name of its own and a configured rate")
        path = Path(path)
        description = json.dumps([asdict(info) for info in infos]).encode()
        start = _start(len(description))
        temporary = path.with_name(f".{path.name}.new")
        with temporary.open("w+b") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(_HEADER.pack(_MAGIC, len(infos), len(description)) + description)
            file.flush()
            os.posix_fallocate(file.fileno(), 0, start + len(infos) * _RECORD_BYTES)  # a full disk is told here, not by a signal later
            board = cls(path, mmap.mmap(file.fileno(), 0), infos, start)
        for i, rate_bps in enumerate(configured_bps):
            board.set_configured(i, rate_bps)
        temporary.replace(path)
        return board

    @classmethod
    def open(cls, path: str | Path) -> Board:
        """Use a board that is there, for reading only where the file may not be written."""
        try:
            writable = os.access(path, os.W_OK)
            with Path(path).open("r+b" if writable else "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            raise BoardError(f"{path} cannot be opened as a board: {error}") from error
        try:
            infos, start = _describe(mapped)
        except (ValueError, TypeError, StructError) as error:
            mapped.close()
            raise BoardError(f"{path} is not a board: {error}") from error
        return cls(Path(path), mapped, infos, start)

    def index(self, name: str) -> int:
        """Return the number of the queue of that name; BoardError if there is none."""
        if name not in self._numbers:
            raise BoardError(f"there is no queue {name} on the board")
        return self._numbers[name]

    def set_configured(self, i: int, bps: float) -> None:
        """Tell the rate that queue i is shaped to from now on."""
        self._configured.write(i, bps)

    def set_delay(self, i: int, delay_s: float) -> None:
        """Tell the one-way delay that queue i's link has from now on."""
        self._delay.write(i, delay_s)

    def set_hops(self, i: int, mask: int) -> None:
        """Tell which ring hops cross queue i."""
        if mask < 0 or mask.bit_length() > HOP_BITS:
            raise BoardError(f"a mask of ring hops has {HOP_BITS} bits, not {mask.bit_length()}")
        self._hops.write(i, mask)

    def write_queue(self, i: int, reading: QueueReading) -> None:
        """Put the counters of queue i on the board."""
        self._queue.write(i, reading)

    def write_queue_values(self, i: int, values: tuple[float, ...]) -> None:
        """Put the counters of queue i on the board, the values of a QueueReading in order: half the cost, for who writes often."""
        self._queue.write_values(i, values)

    def write_openflow(self, i: int, reading: OpenFlowReading) -> None:
        """Put OpenFlow's counters for queue i on the board."""
        self._openflow.write(i, reading)

    def configured_bps(self, i: int) -> float:
        """Return the rate that queue i is shaped to."""
        return self._configured.read(i) or 0.0

    def openflow(self, i: int) -> OpenFlowReading | None:
        """Return OpenFlow's counters for queue i: the same object until there are newer ones."""
        return self._openflow.read(i)

    def read(self, i: int) -> Entry:
        """Return all that is known of queue i."""
        info, delay_s = self.infos[i], self._delay.read(i)
        delay_s = info.delay_s if delay_s is None else delay_s
        return Entry(info, self.configured_bps(i), delay_s, self._hops.read(i) or 0, self._queue.read(i), self._openflow.read(i))

    def read_all(self) -> list[Entry]:
        """Return all that is known of every queue, in order of their numbers."""
        return [self.read(i) for i in range(len(self.infos))]

    def close(self) -> None:
        """Let go of the file; the board cannot be used any more."""
        self._words.release()
        self._view.release()
        self._mapped.close()


def _start(description_bytes: int) -> int:
    return -(-(_HEADER.size + description_bytes) // _LINE_BYTES) * _LINE_BYTES


def _describe(mapped: mmap.mmap) -> tuple[list[QueueInfo], int]:
    """Read what queues a mapped file describes and where their records begin."""
    magic, count, length = _HEADER.unpack_from(mapped)
    if magic != _MAGIC:
        raise ValueError("it begins with something else")
    start = _start(length)
    if len(mapped) != start + count * _RECORD_BYTES:
        raise ValueError(f"it has {len(mapped)} bytes where {count} queues need {start + count * _RECORD_BYTES}")
    infos = [QueueInfo(**raw) for raw in json.loads(mapped[_HEADER.size : _HEADER.size + length])]
    if len(infos) != count:
        raise ValueError(f"it describes {len(infos)} of {count} queues")
    return infos, start
