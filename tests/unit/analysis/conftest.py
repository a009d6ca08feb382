from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_results import FakeRun, write_experiment

NONE = FakeRun("none", step_s=0.25)
NONE_REPLAY = FakeRun("none", step_s=0.2, workload="replay")
TOPK = FakeRun("topk-0.1", step_s=0.125, bytes_sent=60_000, invalid_reasons=("fidelity 0.93 is below 0.98",), peak_bytes=20_000)
KILLED = FakeRun("3lc", step_s=0.1, bytes_sent=30_000, accuracies=(0.4, 0.7), status="running")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs: valid, valid replay, invalid, killed; a fifth planned and missing."""
    return write_experiment(tmp_path / "quick", [NONE, NONE_REPLAY, TOPK, KILLED], also_planned=("dc2-train-0",))
