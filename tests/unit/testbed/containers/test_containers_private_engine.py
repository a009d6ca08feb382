"""The engine that tests start for themselves: one run of them has it from its first start to its last end, and it brings back no bridge."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.containers import engine as engines


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """Have a folder of the test's own for the engine, and pretend that one can be started."""
    monkeypatch.setattr(engines, "KEPT", tmp_path / "engine")
    monkeypatch.setattr(engines, "_answering", lambda _: None)
    monkeypatch.setattr(engines.os, "geteuid", lambda: 0)
    monkeypatch.setattr(engines.shutil, "which", lambda _: "/usr/sbin/dockerd")
    return tmp_path / "engine"


def is_ours() -> bool:
    try:
        with engines._alone():
            return False
    except engines.NoEngine as error:
        return "another run of the tests has the private engine" in str(error)


def test_one_run_of_the_tests_has_the_engine_from_its_first_start_to_its_last_end(kept, monkeypatch):
    seen: list[tuple[str, bool]] = []

    @contextmanager
    def start(own_network):
        seen.append(("start", is_ours()))
        yield None
        seen.append(("end", is_ours()))

    monkeypatch.setattr(engines, "_private_engine", start)
    monkeypatch.setattr(engines, "build_images", lambda _: None)
    with engines.running_engine():
        assert is_ours()
    assert seen == [("start", True), ("end", True)] * 2
    assert not is_ours()


def test_an_engine_starts_without_the_bridges_that_the_last_one_knew(kept, monkeypatch):
    (kept / "network" / "files").mkdir(parents=True)
    (kept / "image").mkdir()
    seen: list[list[str]] = []

    def start(*_, **__):
        seen.append([path.name for path in kept.iterdir()])
        return SimpleNamespace(send_signal=lambda _: None, wait=lambda _: None)

    monkeypatch.setattr(engines, "subprocess", SimpleNamespace(Popen=start))
    monkeypatch.setattr(engines, "_wait", lambda *_: None)
    monkeypatch.setattr(engines.docker, "DockerClient", lambda _: SimpleNamespace(close=lambda: None))
    with engines._private_engine(own_network=False):
        pass
    assert seen == [["image"]]
