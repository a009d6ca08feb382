"""The recorder of the queues: a process that samples every shaped direction while a run goes on, into `links.jsonl` and onto the board.

Reads {"queues": [...], "output": path, "board": path or null} as one JSON line from standard input and stops when it closes.
Bottlenecks are sampled finely (5 ms or faster: fast enough that a full queue cannot empty between two samples), the other directions
50 times a second. All ticks lie on one grid, and queues of one namespace that are due together are read by one request.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from controller.board import Board, OpenFlowReading
from controller.queues import MOST_AT_ONCE, QueueReader, QueueSample
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.sampling import WINDOW_S, RecentRates, next_tick
from testbed.processes import die_with_parent

if TYPE_CHECKING:
    from testbed.emulation.network import Queue

REALTIME_PRIORITY = 5
UNCERTAINTY_S = 0.5e-3  # a reading that was held up longer than this has no exact time and is left out of the records
TOGETHER_S = 0.2e-3  # what is due so soon is read now: to wake up costs as much as several readings
FLUSH_S = 0.2  # rows are formatted then, many at once: that is cheaper than one now and then


Row = tuple[str, float, QueueSample, float, OpenFlowReading | None]  # names, time, counters, configured rate, news of OpenFlow


def job(queues: list[Queue], intervals_s: Mapping[str, float], output: str, board: str | None, dilation: float = 1.0) -> dict[str, Any]:
    """Describe what to sample how often, for the process's standard input; the board has the queues in the same order."""
    return {
        "output": output,
        "board": board,
        "queues": [
            {
                "index": index,
                "link": q.direction.link,
                "source": q.direction.source,
                "target": q.direction.target,
                "queue": q.kind.name,
                "interface": q.interface,
                "namespace_pid": q.namespace_pid,
                "handle": q.handle,
                "rate_bps": q.rate_bps,
                "queue_bytes": q.queue_bytes,
                "interval_s": intervals_s[q.direction.name],
                "window_s": WINDOW_S * dilation,
            }
            for index, q in enumerate(queues)
        ],
    }


class Recorded:
    """One queue: puts its readings on the board, and turns them into rows of the records."""

    def __init__(self, entry: dict[str, Any], board: Board | None) -> None:
        """Record the queue that a job's entry describes."""
        self.name = f"{entry['interface']} {entry['handle']:x}:"
        self._board, self._index = board, entry["index"]
        self._rates = RecentRates(entry["window_s"])
        self._rate_bps: float = entry["rate_bps"]
        names = {key: entry[key] for key in ("link", "source", "target", "queue", "queue_bytes")}
        self._constant = json.dumps(names)[1:-1]
        self._openflow: OpenFlowReading | None = None  # what the last row told of OpenFlow's counters

    def show(self, mono_s: float, sample: QueueSample, timed: bool) -> None:
        """Put a reading on the board; one without an exact time says nothing of the rates."""
        if self._board is None:
            return
        rates = self._rates
        if timed:
            rates.add(mono_s, sample.sent_bytes, sample.dropped_packets)
        self._board.write_queue_values(self._index, (mono_s, *sample, rates.sent_bps, rates.drops_per_s))

    def row(self, mono_s: float, sample: QueueSample) -> Row:
        """Return what the records say of a reading, with OpenFlow's counters if there are newer ones than in the row before."""
        if self._board is None:
            return self._constant, mono_s, sample, self._rate_bps, None
        openflow = self._board.openflow(self._index)
        news = openflow if openflow is not self._openflow else None
        self._openflow = openflow
        return self._constant, mono_s, sample, self._board.configured_bps(self._index), news


def line(row: Row) -> str:
    """Return a row as a line of JSON."""
    constant, mono_s, sample, rate_bps, openflow = row
    sent_bytes, sent_packets, backlog_bytes, _, dropped_packets, overlimits = sample
    text = (
        f'{{"mono_s": {mono_s:.6f}, {constant}, "rate_bps": {rate_bps!r}, "sent_bytes": {sent_bytes}, "sent_packets": {sent_packets}, '
        f'"dropped_packets": {dropped_packets}, "overlimits": {overlimits}, "backlog_bytes": {backlog_bytes}'
    )
    if openflow is not None:
        counted = {key: getattr(openflow, key) for key in ("port_tx_bytes", "queue_tx_bytes", "queue_tx_packets")}
        text += f', "openflow_mono_s": {openflow.mono_s:.6f}, {json.dumps(counted)[1:-1]}'
    return text + "}\n"


class Batch:
    """Queues of one namespace that are always read together."""

    def __init__(self, reader: QueueReader, queues: list[tuple[tuple[int, int], Recorded]]) -> None:
        """Read the queues of (interface, handle)."""
        self._reader = reader
        self._addresses = [address for address, _ in queues]
        self._queues = [queue for _, queue in queues]
        self._missing: set[str] = set()

    def sample(self, rows: list[Row]) -> None:
        """Read all queues and append their rows.

        One time is told for all of them. Where the whole request was held up nobody knows at which queue, so none has a row then:
        finely sampled queues are therefore in batches of their own, which are short.
        """
        began_s, took_s, samples = self._reader.read_many(self._addresses)
        timed = took_s <= UNCERTAINTY_S
        for queue, sample in zip(self._queues, samples, strict=True):
            if sample is None:
                self._miss(queue.name)
                continue
            queue.show(began_s, sample, timed)
            if timed:
                rows.append(queue.row(began_s, sample))

    def _miss(self, name: str) -> None:
        if name not in self._missing:
            self._missing.add(name)
            print(f"there is no queue {name}", file=sys.stderr, flush=True)


class Round:
    """All that is sampled at the same interval."""

    def __init__(self, every_s: float, batches: list[Batch], start_s: float) -> None:
        """Begin at `start_s`."""
        self.due_s = start_s
        self._every_s = every_s
        self._batches = batches

    def sample(self, rows: list[Row]) -> None:
        """Read every batch, and be due again at the next tick."""
        for batch in self._batches:
            batch.sample(rows)
        self.due_s = next_tick(self.due_s, self._every_s, time.monotonic())


def rounds(entries: list[dict[str, Any]], board: Board | None, start_s: float) -> list[Round]:
    """Arrange a job's queues in rounds, the finest first."""
    namespaces: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        namespaces[entry["namespace_pid"]].append(entry)
    batches: dict[float, list[Batch]] = defaultdict(list)
    for namespace_pid, members in namespaces.items():
        groups: dict[float, list[tuple[tuple[int, int], Recorded]]] = defaultdict(list)
        with network_namespace(namespace_pid):
            reader = QueueReader()
            for entry in members:
                address = (socket.if_nametoindex(entry["interface"]), entry["handle"])
                groups[entry["interval_s"]].append((address, Recorded(entry, board)))
        for every_s, group in groups.items():
            batches[every_s] += [Batch(reader, group[i : i + MOST_AT_ONCE]) for i in range(0, len(group), MOST_AT_ONCE)]
    return [Round(every_s, batches[every_s], start_s) for every_s in sorted(batches)]


def record(all_rounds: list[Round], output: IO[str]) -> None:
    """Sample until standard input closes, and everything once more then."""
    rows: list[Row] = []
    flush_at = time.monotonic() + FLUSH_S
    stopped = not all_rounds
    while not stopped:
        wait_s = max(0.0, min(one.due_s for one in all_rounds) - time.monotonic())
        stopped = bool(select.select([sys.stdin], [], [], wait_s)[0])
        now = time.monotonic()
        for one in all_rounds:
            if stopped or one.due_s <= now + TOGETHER_S:
                one.sample(rows)
        if now > flush_at or stopped:
            output.write("".join([line(row) for row in rows]))
            output.flush()
            rows.clear()
            flush_at = now + FLUSH_S


def main() -> None:
    """Sample as the job on standard input says."""
    die_with_parent()
    order = json.loads(sys.stdin.readline())
    with suppress(PermissionError):  # a recorder that is starved sees only the good moments
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    board = Board.open(order["board"]) if order["board"] else None
    with open(order["output"], "a") as output:
        record(rounds(order["queues"], board, time.monotonic()), output)


if __name__ == "__main__":
    main()
