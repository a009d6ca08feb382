"""What a container is started with; what its process says, through the engine's frames; and why it ended."""

from __future__ import annotations

import json
import os
import socket
import struct
from types import SimpleNamespace

import docker
import pytest
from docker.errors import DockerException
from hypothesis import given
from hypothesis import strategies as st

from testbed.containers.container import MOST_WORDS, AttachedLines, Container, ContainerError, Errand, _settings, explained
from testbed.containers.crew import _for_gpus
from testbed.containers.engine import EngineError
from testbed.containers.order import ContainerOrder

STDOUT, STDERR = 1, 2


ORDER = ContainerOrder("sha256:1", "mine", "20.10", 1000, 100, "1-2-3", {"pid": 1}, 1 << 30, [["3"], []], {"/data": "/usr/share/data"})
ERRAND = Errand("h1", ["python", "-m", "workloads.nursery"], "/results/stream/hosts", ["/results/stream"], _for_gpus("h1"), ["3"])


def frame(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(content)) + content


def event(action: str, **attributes: str):
    return {"Type": "container", "Action": action, "Actor": {"Attributes": attributes}}


@given(st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=20)), max_size=12), st.integers(1, 7))
def test_frames_are_sorted_however_they_arrive(tmp_path_factory, frames, size):
    log = tmp_path_factory.mktemp("frames") / "log"
    lines = AttachedLines(-1, log)
    whole = b"".join(frame(*one) for one in frames)
    output = b"".join(lines.unwrapped(whole[i : i + size]) for i in range(0, len(whole), size))
    assert output == b"".join(content for stream, content in frames if stream == STDOUT)
    assert (log.read_bytes() if log.exists() else b"") == b"".join(content for stream, content in frames if stream == STDERR)


def test_lines_cross_frames_and_complaints_come_between(tmp_path):
    reader, writer = os.pipe()
    lines = AttachedLines(reader, tmp_path / "log")
    line = json.dumps({"event": "ready"}).encode() + b"\n"
    os.write(writer, frame(STDOUT, line[:5]) + frame(STDERR, b"a warning\n"))
    assert lines.read(1.0) == []
    assert not lines.ended
    os.write(writer, frame(STDOUT, line[5:]))
    assert lines.read(1.0) == [{"event": "ready"}]
    os.close(writer)
    assert lines.read(1.0) == [] and lines.ended
    assert (tmp_path / "log").read_text() == "a warning\n"
    os.close(reader)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([event("start"), event("oom"), event("die", exitCode="137")], "ran out of the memory it may use (hosts.memory)"),
        ([event("kill", signal="9"), event("die", exitCode="137")], "was killed from outside (docker kill, signal 9)"),
        ([event("die", exitCode="3")], "ended with code 3: no torch"),
        ([], "ended: no torch"),
    ],
)
def test_the_end_of_a_container_is_told_in_words_and_in_its_own_if_it_ended_by_itself(events, words):
    assert explained(events, lambda: "no torch") == words


def test_a_container_that_ended_without_a_word_is_told_without_one():
    assert explained([event("die", exitCode="3")], lambda: "") == "ended with code 3"


@pytest.fixture
def dying(tmp_path):
    """Return a container, and our hand on what its process says and how the engine says that it ended."""
    ours, theirs = socket.socketpair()
    container, events = Container.__new__(Container), [event("die", exitCode="1")]
    container.id, container.host, container._socket = "1", "h1", ours
    container.lines = AttachedLines(ours.fileno(), tmp_path / "log")
    container._client = SimpleNamespace(events=lambda **_: events)
    yield container, theirs, events
    ours.close()
    theirs.close()


COMPLAINT = b"Traceback (most recent call last):\n  import torch\nModuleNotFoundError: No module named 'torch'\n \n"


def test_a_nursery_that_dies_of_an_import_says_so_to_those_who_wait_for_it(dying):
    container, theirs, _ = dying
    theirs.sendall(frame(STDERR, COMPLAINT))
    theirs.close()
    with pytest.raises(ContainerError, match=r"^the container of h1 ended with code 1: ModuleNotFoundError: No module named 'torch'$"):
        container.wait_for("preloaded", 5.0)


def test_a_nursery_that_died_before_it_was_told_anything_says_why_although_nobody_has_listened_yet(dying):
    container, theirs, _ = dying
    theirs.sendall(frame(STDERR, COMPLAINT) + frame(STDOUT, b"no JSON\n"))
    theirs.close()
    with pytest.raises(ContainerError, match=r"^the container of h1 ended with code 1: ModuleNotFoundError: No module named 'torch'$"):
        container.tell({"preload": "all"})


def test_what_a_container_complained_of_is_no_reason_if_it_was_killed(dying):
    container, theirs, events = dying
    events[:0] = [event("kill", signal="9")]
    theirs.sendall(frame(STDERR, b"a warning\n"))
    theirs.close()
    with pytest.raises(ContainerError, match=r"^the container of h1 was killed from outside \(docker kill, signal 9\)$"):
        container.wait_for("preloaded", 5.0)


def test_of_a_long_last_word_only_the_beginning_is_told(tmp_path):
    reader, writer = os.pipe()
    lines = AttachedLines(reader, tmp_path / "log")
    os.write(writer, frame(STDERR, b"x" * (MOST_WORDS + 1)))
    os.close(writer)
    assert lines.last_words() == "x" * MOST_WORDS
    os.close(reader)


@pytest.fixture
def client():
    with docker.APIClient("unix:///nowhere", version="1.41") as client:  # it is not asked anything
        yield client


def test_a_container_has_no_privilege_no_network_and_nothing_of_its_own_to_write_to(client):
    settings = _settings(client, ORDER, ERRAND)
    assert settings["user"] == "1000:100"
    assert settings["network_disabled"] is True
    assert settings["host_config"] == {
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "UsernsMode": "host",
        "Init": False,
        "AutoRemove": True,
        "Mounts": [
            {"Target": "/results/stream", "Source": "/results/stream", "Type": "bind", "ReadOnly": False},
            {"Target": "/usr/share/data", "Source": "/data", "Type": "bind", "ReadOnly": True},
            {"Target": "/etc/hosts", "Source": "/results/stream/hosts", "Type": "bind", "ReadOnly": True},
        ],
        "Tmpfs": {"/tmp": "size=67108864"},
        "Memory": 1 << 30,
        "MemorySwap": 1 << 30,
        "PidsLimit": 512,
        "LogConfig": {"Type": "none", "Config": {}},
        "DeviceRequests": [{"Driver": "nvidia", "Count": 0, "DeviceIDs": ["3"], "Capabilities": [["gpu"]], "Options": {}}],
    }


def test_a_colon_in_a_path_parts_nothing(client):
    errand = Errand("h1", ["cat"], "/results/9:30/hosts", ["/results/9:30/stream"], {}, [])
    mounts = _settings(client, ORDER, errand)["host_config"]["Mounts"]
    assert [one["Source"] for one in mounts] == ["/results/9:30/stream", "/data", "/results/9:30/hosts"]
    assert mounts[0]["Target"] == "/results/9:30/stream"


def test_a_container_starts_what_it_is_told_whatever_its_image_would(client):
    settings = _settings(client, ORDER, ERRAND)
    assert settings["entrypoint"] == ["python", "-m", "workloads.nursery"]
    assert "command" not in settings
    assert settings["stdin_open"] is True
    assert settings["labels"] == ORDER.labels("h1")


def test_nccl_is_held_to_the_emulated_network(client):
    assert _settings(client, ORDER, ERRAND)["environment"] == {
        "HOME": "/tmp",
        "NCCL_SOCKET_IFNAME": "h1-eth0",
        "NCCL_HOSTID": "h1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
    }


def test_without_gpus_no_device_is_asked_for(client):
    assert "DeviceRequests" not in _settings(client, ORDER, Errand("h2", ["cat"], "/results/stream/hosts", [], {}, []))["host_config"]


class GoneEngine:
    """Answers nothing any more."""

    def __init__(self, fault: Exception) -> None:
        self._fault = fault

    def __getattr__(self, name):
        def ask(*_, **__):
            raise self._fault

        return ask


@pytest.mark.parametrize("fault", [ConnectionError("aborted"), DockerException("odd")])
def test_an_engine_that_goes_away_is_told_in_a_sentence_whatever_it_is_asked(monkeypatch, tmp_path, fault):
    gone = GoneEngine(fault)
    gone._version, gone.create_host_config = "1.41", lambda **_: {}
    with pytest.raises(ContainerError, match=r"^the container of h1 does not start: the engine at .* does not do what it is asked"):
        Container(gone, ORDER, ERRAND, tmp_path / "log")
    container = Container.__new__(Container)
    container._client, container.id = gone, "1"
    assert container.why_it_ended().startswith("ended, and the Docker engine does not tell why")
    assert not container.ran_out_of_memory()
    for ask in (container.throttled_s, lambda: container.limit_cpus(1, 2)):
        with pytest.raises(EngineError, match="see what it says"):
            ask()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ({"cpu_stats": {"throttling_data": {"periods": 9, "throttled_time": 2_500_000_000}}}, 2.5),
        ({"cpu_stats": {"throttling_data": {"throttled_time": 0}}}, 0.0),
        ({"cpu_stats": {"throttling_data": {}}}, None),
        ({"cpu_stats": {"throttling_data": None}}, None),
        ({"cpu_stats": {}}, None),
        ({}, None),
    ],
)
def test_a_time_held_back_that_the_engine_does_not_tell_is_none_and_no_failure(told, seconds):
    container = Container.__new__(Container)
    container._client, container.id = SimpleNamespace(stats=lambda *_, **__: told), "1"
    assert container.throttled_s() == seconds
