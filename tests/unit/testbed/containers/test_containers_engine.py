"""The engine and its images: what is wrong is one sentence, with what to do about it."""

from __future__ import annotations

import os
import socket
import tempfile

import pytest
from docker.errors import APIError, ImageNotFound
from requests import Response

from testbed.containers import engine
from testbed.containers.engine import EngineError, NoEngine, asking, connect, fitting_image, require_gpus, require_rootful
from testbed.containers.identity import PYTHON_LABEL, SOURCE_LABEL, python_version, source_digest

OURS = {PYTHON_LABEL: python_version(), SOURCE_LABEL: source_digest()}


class PretendedEngine:
    """Knows one image."""

    def __init__(
        self, labels: dict[str, str] | None = None, runtimes: tuple[str, ...] = ("runc",), security: tuple[str, ...] | None = ()
    ) -> None:
        self.labels, self.runtimes, self.security = labels, runtimes, security

    def inspect_image(self, name):
        if name.startswith("absent") or name == "netsense-worker:absent":
            raise ImageNotFound("no such image")
        if name == "a:b:c":
            raise APIError("400", explanation="invalid reference format")
        return {"Id": "sha256:1", "Config": {"Labels": self.labels}}

    def info(self):
        return {"Runtimes": dict.fromkeys(self.runtimes), "SecurityOptions": self.security}


def test_no_engine_is_told_with_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(NoEngine, match=r"no Docker engine answers at .*docker\.sock: start it .* or install one"):
        connect()


def test_an_engine_that_was_killed_and_left_its_socket_is_no_engine(monkeypatch, tmp_path):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with pytest.raises(NoEngine, match="no Docker engine answers"):
        connect()


def test_what_listens_and_is_no_engine_is_told_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "TIMEOUT_S", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        with pytest.raises(EngineError, match=r"does not answer as one .*: start it again .* or have DOCKER_HOST name another") as refused:
            connect()
    assert refused.type is EngineError  # it is not to be taken for none


def test_an_engine_elsewhere_is_refused(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(EngineError, match="workers must be on this machine"):
        connect()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_permission_on_the_socket_is_told_as_such(monkeypatch):
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        os.chmod(folder, 0o755)  # the socket alone is closed to others
        listener.bind(f"{folder}/docker.sock")
        listener.listen()
        os.chmod(f"{folder}/docker.sock", 0o600)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.setuid(65534)
            try:
                connect()
            except EngineError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        told = os.read(reader, 4096).decode()
        os.close(reader)
    assert "no permission on the engine's socket" in told
    assert "run it with sudo, or join the group" in told


@pytest.mark.parametrize(
    ("name", "remedy"), [("netsense-worker:absent", "`make images` makes it"), ("absent/own", "`docker pull absent/own`")]
)
def test_a_missing_image_is_told_with_how_to_get_it_and_who_was_asked(name, remedy, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    with pytest.raises(EngineError) as refused:
        fitting_image(PretendedEngine(), name)
    assert f"the engine at unix:///run/mine.sock has no image {name}" in str(refused.value)
    assert remedy in str(refused.value)


def test_what_is_no_name_of_an_image_is_told_with_what_is():
    with pytest.raises(EngineError, match=r"does not take a:b:c for an image \(invalid reference format\): write NAME or NAME:TAG"):
        fitting_image(PretendedEngine(), "a:b:c")


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, "is none for workers: build it FROM netsense-worker"),
        ({"maintainer": "somebody"}, "is none for workers"),
        ({**OURS, PYTHON_LABEL: "3.9"}, f"has Python 3.9 and the testbed {python_version()}: make images BASE_IMAGE=python:"),
        ({**OURS, SOURCE_LABEL: "0" * 12}, "another version of the testbed: run `make images` again"),
    ],
)
def test_an_image_that_does_not_fit_is_refused(labels, sentence):
    with pytest.raises(EngineError) as refused:
        fitting_image(PretendedEngine(labels), "netsense-worker")
    assert sentence in str(refused.value)


def test_an_image_of_our_python_and_sources_is_taken():
    assert fitting_image(PretendedEngine(OURS), "netsense-worker")["Id"] == "sha256:1"


def test_gpus_need_a_runtime_for_them():
    require_gpus(PretendedEngine(runtimes=("runc", engine.GPU_RUNTIME)))
    with pytest.raises(EngineError, match=r"NVIDIA Container Toolkit .*nvidia-ctk runtime configure"):
        require_gpus(PretendedEngine())


def test_a_rootless_engine_is_refused_with_which_one_to_name(monkeypatch):
    for security in (None, (), ("name=seccomp,profile=default", "name=userns")):
        require_rootful(PretendedEngine(security=security))
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    sentence = r"^the engine at unix:///run/user/1000/docker.sock is rootless, .*: have DOCKER_HOST name the system's, e.g. unix:///var/run"
    with pytest.raises(EngineError, match=sentence):
        require_rootful(PretendedEngine(security=("name=seccomp,profile=default", "name=rootless")))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (400, "the engine at unix:///run/mine.sock refuses what it is asked: bind source path does not exist"),
        (409, "the engine at unix:///run/mine.sock refuses what it is asked: bind source path does not exist"),
        (500, "the engine at unix:///run/mine.sock does not do what it is asked (bind source path does not exist): see what it says"),
    ],
)
def test_nobody_is_sent_to_restart_an_engine_that_is_well_and_refuses(status, sentence, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    answer = Response()
    answer.status_code = status
    with pytest.raises(EngineError) as refused, asking():
        raise APIError("worse", answer, "bind source path does not exist")
    assert str(refused.value).startswith(sentence)
    assert ("start it again" in str(refused.value)) == (status == 500)


def test_the_digest_is_of_the_code_that_workers_run(tmp_path):
    for name, content in (("workloads/a.py", "1"), ("controller/b.py", "2"), ("analysis/c.py", "3")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    before = source_digest(tmp_path)
    (tmp_path / "analysis/c.py").write_text("4")
    assert source_digest(tmp_path) == before
    (tmp_path / "controller/b.py").write_text("4")
    assert source_digest(tmp_path) != before
