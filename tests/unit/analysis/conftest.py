from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_results import copy_of, mishaps
from synthetic_results import FakeRun, write_experiment

from analysis import write_report
from analysis.figures import FIGURES

NONE = FakeRun("none", step_s=0.25)
NONE_REPLAY = FakeRun("none", step_s=0.2, workload="replay")
TOPK = FakeRun("topk-0.1", step_s=0.125, bytes_sent=60_000, invalid_reasons=("fidelity 0.93 is below 0.98",), peak_bytes=20_000)
KILLED = FakeRun("3lc", step_s=0.1, bytes_sent=30_000, accuracies=(0.4, 0.7), status="running")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs: valid, valid replay, invalid, killed; a fifth planned and missing."""
    return write_experiment(tmp_path / "quick", [NONE, NONE_REPLAY, TOPK, KILLED], also_planned=("dc2-train-0",))


@pytest.fixture
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports have two figures, as all of them take most of a report's time."""
    for name in set(FIGURES) - {"throughput", "bytes_step"}:
        monkeypatch.delitem(FIGURES, name)


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a stored experiment with its whole report, which is written once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reports"
    shared.mkdir(exist_ok=True)

    def written(name: str) -> Path:
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not list((shared / name).glob("*/report.html")):
                write_report(mishaps(shared / name) if name == "mishaps" else copy_of(name, shared / name))
        return next((shared / name).glob("*/report.html")).parent

    return written
