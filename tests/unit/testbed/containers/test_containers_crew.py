"""Who failed first: a worker whose peer's container is gone fails too, and may be the first to tell."""

from __future__ import annotations

import json
import os
import signal
import threading

import pytest

from testbed.containers.container import AttachedLines
from testbed.containers.crew import ContainerWorkers
from tests.unit.testbed.containers.test_containers_container import STDOUT, frame


class PretendedContainer:
    """Says what it is told to say."""

    def __init__(self, folder, host: str, out_of_memory: bool = False) -> None:
        reader, self.writer = os.pipe()
        self.host, self.lines, self.out_of_memory = host, AttachedLines(reader, folder / "log"), out_of_memory

    def say(self, **message) -> None:
        os.write(self.writer, frame(STDOUT, json.dumps(message).encode() + b"\n"))

    def end(self) -> None:
        os.close(self.writer)

    def ran_out_of_memory(self) -> bool:
        return self.out_of_memory

    def why_it_ended(self) -> str:
        return "was killed from outside"


@pytest.fixture
def crew(tmp_path):
    workers = ContainerWorkers.__new__(ContainerWorkers)
    workers._crew = [PretendedContainer(tmp_path, f"h{i}", out_of_memory=i == 2) for i in range(3)]
    workers._ended = set()
    return workers


def test_what_workers_say_is_told_with_their_rank(crew):
    crew._crew[1].say(event="started", pid=7)
    crew._crew[2].say(event="exited", code=0)
    assert [(one["event"], one["rank"]) for one in crew.hear()] == [("started", 1), ("exited", 2)]


def test_a_container_that_ended_is_named_before_the_worker_that_missed_it(crew):
    crew._crew[0].say(event="exited", code=1)
    timer = threading.Timer(0.2, crew._crew[1].end)
    timer.start()
    first, second = crew.hear()
    timer.join()
    assert (first["rank"], first["code"], first["why"]) == (1, None, "is gone: its container was killed from outside")
    assert (second["rank"], second["code"], second["why"]) == (0, 1, None)


def test_a_failure_of_its_own_is_told_after_a_moment_without_other_cause(crew):
    crew._crew[0].say(event="exited", code=1)
    assert [(one["rank"], one["why"]) for one in crew.hear()] == [(0, None)]


def test_a_worker_that_was_killed_for_want_of_memory_says_so(crew):
    crew._crew[2].say(event="exited", code=-signal.SIGKILL)
    (told,) = crew.hear()
    assert told["why"] == "ran out of the memory its container may use"


def test_a_container_that_ends_after_its_worker_is_no_failure(crew):
    crew._crew[0].say(event="exited", code=0)
    crew._crew[0].end()
    assert [one["code"] for one in crew.hear()] == [0]
    assert crew.hear() == []
