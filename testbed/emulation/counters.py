"""Read an emulated network's queues, in whatever namespace they are, and do it in time."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from controller.queues import QueueReader, QueueSample
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork, Queue

DRAIN_SECONDS = 10.0
SWITCHING_S = 0.02  # in which a switch is done with a frame it has received, with room to spare
SAMPLE_UNCERTAINTY_S = 0.3e-3  # a reading that was held up longer has no time and is left out


class VerificationError(RuntimeError):
    """The network is not what the experiment asked for; the message has the numbers."""


class Counter:
    """Reads one queue from whatever namespace it is in."""

    def __init__(self, queue: Queue) -> None:
        with network_namespace(queue.namespace_pid):
            self._reader = QueueReader()
            self._ifindex = socket.if_nametoindex(queue.interface)
        self._handle = queue.handle

    def close(self) -> None:
        """Close its socket."""
        self._reader.close()

    def read(self) -> QueueSample:
        """Return the queue's counters now."""
        return self._reader.read(self._ifindex, self._handle)

    def timed(self) -> tuple[float, QueueSample] | None:
        """Return the counters with their time; None if the reading was held up."""
        before = time.monotonic()
        sample = self.read()
        return (before, sample) if time.monotonic() - before < SAMPLE_UNCERTAINTY_S else None


def drain(network: EmulatedNetwork) -> None:
    """Wait until every queue is empty, and what left them has arrived and been answered."""
    patience_s = DRAIN_SECONDS + max((queue.queue_bytes * 8 / queue.rate_bps for queue in network.queues), default=0.0)
    deadline = time.monotonic() + patience_s
    for queue in network.queues:
        counter = Counter(queue)
        while counter.read().backlog_bytes:
            if time.monotonic() > deadline:
                raise VerificationError(f"the queue of {queue.name} did not drain in {patience_s:.0f} s")
            time.sleep(0.002)
        counter.close()
    description = network.description
    first, *others = description.all_hosts
    round_trip_s = max(description.base_rtt_s(first, other) for other in others)
    jitter_s = max(direction.spec.jitter_s for direction in description.directions())
    time.sleep(SWITCHING_S + round_trip_s + 2 * jitter_s)


@contextmanager
def realtime() -> Iterator[None]:
    """Let no ordinary process hold the trial up; Open vSwitch and the delay line still go before it."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
