"""A run for the API's tests: two queues of a dumbbell, a controller that takes or refuses paths."""

from __future__ import annotations

import time

from controller.board import Entry, OpenFlowReading, QueueInfo, QueueReading

NOW_S = 100.25
TRAINING = "bottleneck:s1->s2/training"
UPLINK = "access-h1:h1->s1"
HOSTS, TRAFFIC_HOSTS, SWITCHES = ["h1", "h2"], ["t1"], ["s1", "s2"]
PATH = ["h1", "s1", "s2", "h2"]


def entries(now_s: float = NOW_S) -> list[Entry]:
    queue = QueueReading(now_s - 0.25, 9_000_000, 6000, 25_000, 17, 7, 40, 8e6, 3.5)
    openflow = OpenFlowReading(now_s - 0.75, 11, 12, 13, 14, 15, 16, 17)
    read = QueueInfo(TRAINING, "bottleneck", "s1", "s2", "training", 50_000, 0.005, True)
    never_read = QueueInfo(UPLINK, "access-h1", "h1", "s1", "", 90_000, 0.0, False)
    return [Entry(read, 10e6, 0.005, 1, queue, openflow), Entry(never_read, 100e6, 0.0, 0, None, None)]


class FakeRun:
    """A `Source`; `fault` is raised by whatever is asked of it, `objection` is the controller's to any path."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.objection: str | None = None
        self.pinned: list[list[str]] = []
        self.many = 1

    def entries(self):
        self._fail()
        return entries(time.monotonic()) * self.many

    def topology(self):
        self._fail()
        links = [{"name": "bottleneck", "a": "s1", "b": "s2", "bottleneck": True}]
        return {"hosts": HOSTS, "traffic_hosts": TRAFFIC_HOSTS, "switches": SWITCHES, "links": links, "down": ["bottleneck"]}

    def paths(self):
        self._fail()
        return [PATH, PATH[::-1], *self.pinned]

    def pin(self, path):
        self._fail()
        if self.objection is None:
            self.pinned.append(path)
        return self.objection

    def run(self):
        self._fail()
        return {"experiment": "quick", "run": "netsense"}

    def _fail(self):
        if self.fault is not None:
            raise self.fault
