"""The recorder of the queues: a process that samples every shaped direction into `links.jsonl` while a run goes on.

Reads {"queues": [...], "output": path} as one JSON line from standard input and stops when it closes. Bottlenecks are sampled finely
(5 ms or faster: fast enough that a full queue cannot empty between two samples), the other directions ten times a second.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from controller.queues import QueueReader
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import Queue
from testbed.emulation.openvswitch import LEAF_HANDLE
from testbed.emulation.sampling import interval_s
from testbed.processes import die_with_parent

REALTIME_PRIORITY = 5
UNCERTAINTY_S = 0.5e-3  # a reading that was held up longer than this has no exact time and is left out
FLUSH_S = 0.5


def job(queues: list[Queue], output: str) -> dict[str, Any]:
    """Describe what to sample, for the process's standard input."""
    return {
        "output": output,
        "queues": [
            {
                "link": q.direction.link,
                "source": q.direction.source,
                "target": q.direction.target,
                "interface": q.interface,
                "namespace_pid": q.namespace_pid,
                "rate_bps": q.direction.spec.rate_bps,
                "queue_bytes": q.direction.spec.queue_bytes,
                "interval_s": interval_s(q.direction.bottleneck, q.direction.spec.rate_bps, q.direction.spec.queue_bytes or 0),
            }
            for q in queues
            if q.direction.spec.rate_bps is not None
        ],
    }


class _Sampled:
    """One queue, with its reader in the right namespace and the constant part of its rows."""

    def __init__(self, entry: dict[str, Any]) -> None:
        with network_namespace(entry["namespace_pid"]):
            self._reader = QueueReader()
            self._ifindex = socket.if_nametoindex(entry["interface"])
        self.interval_s: float = entry["interval_s"]
        names = {key: entry[key] for key in ("link", "source", "target", "rate_bps", "queue_bytes")}
        self._constant = json.dumps(names)[1:-1]

    def row(self) -> str | None:
        """Sample the queue; None if the reading was held up."""
        before = time.monotonic()
        sample = self._reader.read(self._ifindex, LEAF_HANDLE)
        if time.monotonic() - before > UNCERTAINTY_S:
            return None
        return (
            f'{{"mono_s": {before:.6f}, {self._constant}, "sent_bytes": {sample.sent_bytes}, "sent_packets": {sample.sent_packets}, '
            f'"dropped_packets": {sample.dropped_packets}, "backlog_bytes": {sample.backlog_bytes}}}\n'
        )


def main() -> None:
    """Sample until standard input closes."""
    die_with_parent()
    order = json.loads(sys.stdin.readline())
    with suppress(PermissionError):  # a recorder that is starved sees only the good moments
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    now = time.monotonic()
    due = [(now, number, _Sampled(entry)) for number, entry in enumerate(order["queues"])]
    heapq.heapify(due)
    rows: list[str] = []
    flush_at = now + FLUSH_S
    with open(order["output"], "a") as output:
        stopped = False
        while due and not stopped:
            wait_s = max(0.0, due[0][0] - time.monotonic())
            stopped = bool(select.select([sys.stdin], [], [], wait_s)[0])
            at, number, queue = due[0]
            row = queue.row()
            if row is not None:
                rows.append(row)
            now = time.monotonic()
            heapq.heapreplace(due, (max(at + queue.interval_s, now), number, queue))
            if now > flush_at or stopped:
                output.writelines(rows)
                output.flush()
                rows.clear()
                flush_at = now + FLUSH_S


if __name__ == "__main__":
    main()
