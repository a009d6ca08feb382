"""Who failed first: a worker whose peer's container is gone fails too, and may be the first to tell."""

from __future__ import annotations

import json
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from testbed.containers.container import AttachedLines, ContainerError
from testbed.containers.crew import ContainerWorkers
from tests.unit.testbed.containers.test_containers_container import STDOUT, frame
from workloads import herald


class PretendedContainer:
    """Says what it is told to say."""

    def __init__(self, folder, host: str, out_of_memory: bool = False) -> None:
        reader, self.writer = os.pipe()
        self.host, self.lines, self.out_of_memory = host, AttachedLines(reader, folder / "log"), out_of_memory
        self.told: list[dict] = []

    def say(self, **message) -> None:
        os.write(self.writer, frame(STDOUT, json.dumps(message).encode() + b"\n"))

    def end(self) -> None:
        os.close(self.writer)

    def tell(self, message) -> None:
        self.told.append(message)

    def ran_out_of_memory(self) -> bool:
        return self.out_of_memory

    def why_it_ended(self) -> str:
        return "was killed from outside"


@pytest.fixture
def crew(tmp_path):
    workers = ContainerWorkers.__new__(ContainerWorkers)
    workers._crew = [PretendedContainer(tmp_path, f"h{i}", out_of_memory=i == 2) for i in range(3)]
    workers._idle = [PretendedContainer(tmp_path, "t1")]
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


def test_a_container_for_traffic_that_ends_is_heard_of_and_ends_the_run(crew):
    assert crew._idle[0].lines in crew.lines
    assert crew.hear() == []
    crew._idle[0].end()
    with pytest.raises(ContainerError, match=r"^the container of t1 was killed from outside$"):
        crew.hear()


def test_workers_may_add_to_the_stream_from_the_first_job_on_and_remove_nothing_of_others(crew, tmp_path):
    os.mkfifo(tmp_path / herald.PIPE)
    crew._stream, crew._logs = tmp_path, tmp_path / "logs"
    crew._order = SimpleNamespace(user_id=os.getuid(), group_id=os.getgid())
    before = tmp_path.stat().st_mode & 0o7777
    assert before & 0o1022 == 0
    crew.start(0, tmp_path / "job-0.json", 1)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1775
    assert crew._crew[0].told == [{"job": str(tmp_path / "job-0.json"), "log": str(tmp_path / "logs" / "worker-0.log")}]
