"""The code of docs/analysis.md, run as written on stored results."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from stored_results import DATA, change

DOCUMENT = DATA.parents[1] / "docs" / "analysis.md"


def test_the_code_of_the_document_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results" / "quick"
    shutil.copytree(DATA / "train", folder)
    shutil.copytree(folder / "none_r1", folder / "stray")
    change(folder / "stray" / "manifest.json", experiment="another", scheme="stray")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), names)
    assert len(blocks) == 4
    assert (tmp_path / "accuracy.png").stat().st_size > 5000
    evals, peaks = names["good"], names["peaks_kb"]
    assert isinstance(evals, pd.DataFrame)
    assert len(evals) > 0 and "stray" not in set(evals["scheme"])
    assert isinstance(peaks, pd.Series)
    assert peaks.index.to_list() == ["none", "topk-0.1", "topk-0.01", "3lc-ps", "netsense"]
    assert peaks.gt(0).all()
    dropped = names["dropped"]
    assert isinstance(dropped, dict)
    assert len(dropped) == 10
    assert (dropped["none_r1"], dropped["netsense_r1"]) == (229, 33)  # while training: the verification's flood is not in it
    assert peaks["topk-0.01"] == pytest.approx(10.3, abs=0.05)
