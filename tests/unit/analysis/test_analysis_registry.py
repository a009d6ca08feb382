"""Figures are found by their files, each once, in an order of their own."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from synthetic_results import FakeRun, rewrite, write_experiment

from analysis import load
from analysis.figures import FIGURES
from analysis.figures.registry import find

FILE = """
from analysis.figures.registry import Drawing

FIGURE = Drawing({name!r}, "Mine", "What I wanted to see.", {place}, lambda results: "nothing of mine", lambda results: None)
"""


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> list[str]:
    (folder / "found_figures").mkdir()
    for name, text in {"__init__": "", **files}.items():
        (folder / "found_figures" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "found_figures"]:
        monkeypatch.delitem(sys.modules, name)
    return [str(folder / "found_figures")]


def test_a_figure_needs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = package(
        tmp_path, monkeypatch, late=FILE.format(name="late", place=9), early=FILE.format(name="early", place=1), helper="X = 1"
    )
    assert list(find("found_figures", folders)) == ["early", "late"]


def test_two_figures_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = package(tmp_path, monkeypatch, one=FILE.format(name="same", place=1), two=FILE.format(name="same", place=2))
    with pytest.raises(ValueError, match="two figures are named same"):
        find("found_figures", folders)


def test_every_figure_says_what_it_shows_and_either_draws_or_says_why_not(tmp_path: Path) -> None:
    results = load(write_experiment(tmp_path / "x", [FakeRun("none"), FakeRun("3lc", status="running")]))
    for name, figure in FIGURES.items():
        assert figure.name == name
        assert figure.title and figure.about.endswith(".")
        assert (figure.draw(results) is None) == bool(figure.reason(results))


def test_figures_of_runs_without_a_step_say_so(tmp_path: Path) -> None:
    results = load(write_experiment(tmp_path / "x", [FakeRun("none", steps=0, accuracies=(), link_samples=0, status="running")]))
    assert {name for name, figure in FIGURES.items() if not figure.reason(results)} == set()
    assert all(figure.draw(results) is None for figure in FIGURES.values())


def test_a_run_whose_records_have_gaps_spoils_no_figure_of_the_others(tmp_path: Path) -> None:
    change = ((1.0, {"link": "bottleneck", "rate_bps": 1e6}),)
    folder = write_experiment(
        tmp_path / "x", [FakeRun("none", changes=change), FakeRun("dc2", changes=change), FakeRun("3lc", changes=change)]
    )
    rewrite(folder / "none-train-0", "links", sent_bytes=math.nan, rate_bps=math.nan)
    rewrite(folder / "dc2-train-0", "steps", ratio=math.nan, bytes_sent=math.nan)
    results = load(folder)
    drawn = {name for name, figure in FIGURES.items() if figure.draw(results) is not None}
    assert {"changes", "bits_value", "backlog", "backlog_share", "breakdown", "accuracy_bytes"} <= drawn
