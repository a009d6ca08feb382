"""Who failed first: a worker whose peer's container is gone fails too, and may be the first to tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.containers.container import AttachedLines, ContainerError
from testbed.containers.crew import NAMES, ContainerWorkers
from testbed.containers.engine import NoEngine
from tests.unit.testbed.containers.test_containers_container import ORDER, STDOUT, frame
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
    (tmp_path / "job-0.json").touch()
    crew._stream, crew._logs = tmp_path, tmp_path / "logs"
    crew._order = SimpleNamespace(user_id=os.getuid(), group_id=os.getgid())
    before = tmp_path.stat().st_mode & 0o7777
    assert before & 0o1022 == 0
    crew.start(0, tmp_path / "job-0.json", 1)
    assert tmp_path.stat().st_mode & 0o7777 == 0o1775
    assert crew._crew[0].told == [{"job": str(tmp_path / "job-0.json"), "log": str(tmp_path / "logs" / "worker-0.log")}]


@pytest.fixture
def strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_workers_can_read_the_names_they_know_whatever_roots_umask_is(monkeypatch, tmp_path, strict_umask):
    (tmp_path / "stream").mkdir()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(NoEngine):  # the names are what comes first
        ContainerWorkers(SimpleNamespace(containers=asdict(ORDER), run_dir=str(tmp_path)), 0)
    names = tmp_path / "stream" / "hosts"
    assert (names.read_text(), names.stat().st_mode & 0o777) == (NAMES, 0o644)


def test_workers_can_read_their_jobs_whatever_roots_umask_is_and_own_none(crew, tmp_path, strict_umask):
    os.mkfifo(tmp_path / herald.PIPE)
    crew._stream, crew._logs = tmp_path, tmp_path / "logs"
    crew._order = SimpleNamespace(user_id=os.getuid(), group_id=os.getgid())
    given: list[Path] = []
    crew._give = given.append
    for rank in range(2):
        job = tmp_path / f"job-{rank}.json"
        job.write_text("{}")
        crew.start(rank, job, 1)
        assert job.stat().st_mode & 0o777 == 0o644
    assert given == [tmp_path / herald.PIPE]


@pytest.fixture
def place(crew):
    """Return the place of a container that is this process."""
    crew._outer, crew._order = Path("/proc"), SimpleNamespace(user_id=65534, group_id=65533)
    place = crew._place(SimpleNamespace(host="t1", pid=os.getpid(), id="/"))  # its group's name is a path
    yield place
    os.close(place.namespace)
    os.close(int(place.entry[-5].rpartition("/")[2]))


def test_what_enters_a_container_goes_without_roots_environment_and_can_gain_no_right(place):
    assert place.entry[:3] == ("env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    assert place.entry[3:7] == ("HOME=/tmp", "setpriv", "--no-new-privs", "nsenter")
    assert place.entry[7].startswith(f"--mount=/proc/{os.getpid()}/fd/")
    assert place.entry[8:] == ("--setgid", "65533", "--setuid", "65534")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter a mount namespace and become another user")
def test_what_has_entered_a_container_has_neither_roots_environment_nor_a_way_to_gain_a_right(place, monkeypatch):
    def said(*command: str) -> list[str]:
        return subprocess.run([*place.entry, *command], capture_output=True, text=True, check=True).stdout.split()

    monkeypatch.setenv("ROOTS_SECRET", "x")
    assert [line.partition("=")[0] for line in said("env")] == ["PATH", "HOME"]
    assert said("grep", "NoNewPrivs", "/proc/self/status") == ["NoNewPrivs:", "1"]
    assert said("id", "-u") + said("id", "-g") == ["65534", "65533"]
