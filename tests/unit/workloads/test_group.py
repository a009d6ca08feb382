"""Workers that share a folder meet in a store of rank 0's, whoever comes first."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from workloads import group
from workloads.job import Job

PATIENCE = timedelta(seconds=20)


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workload = {"kind": "replay", "budget": {"steps": 1}}
    made = [Job("run", rank, 2, "127.0.0.1", port, "lo", str(tmp_path), 1, {"scheme": "none"}, workload) for rank in range(2)]
    made[0].stream_dir.mkdir()
    return made


def test_who_comes_first_waits_for_rank_0(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        opened = []

        def open_now(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                opened.append(pool.submit(group._own_store, jobs[0], PATIENCE).result())

        monkeypatch.setattr(group.time, "sleep", open_now)
        store = group._own_store(jobs[1], PATIENCE)
        store.set("greeting", "hello")
        assert opened[0].get("greeting") == b"hello"
    assert len(waited) == 3


def test_a_rank_0_that_does_not_come_is_told(jobs: list[Job]) -> None:
    with pytest.raises(TimeoutError, match="rank 0 opened no store within 0 s"):
        group._own_store(jobs[1], timedelta(seconds=0.02))
