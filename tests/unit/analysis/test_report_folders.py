"""Folders that are not as they should be: a sentence says so, and what can be shown is shown."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from stored_results import DATA, change, copy_of

from analysis import load, summarise, words
from analysis.report import html, page, write
from analysis.report.write import main

ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("testbed", "controller", "topologies", "workloads", "torch", "mininet", "os_ken"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Refuse())
from analysis.figures import FIGURES
for name in set(FIGURES) - {"throughput"}:
    del FIGURES[name]
from analysis.report.write import main
sys.exit(main(sys.argv[1:]))
"""


def render(folder: Path) -> str:
    """Make the page without its figures, which take most of the time."""
    results = load(folder)
    rows = summarise(results)
    return unescape(html.render(page.gather(results, rows, {}, {}, results.problems)))


def test_an_empty_folder_is_one_sentence_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said == f"{tmp_path} holds no results. Run an experiment first (testbed run), or give another folder."


def test_a_half_written_folder_shows_the_runs_that_are_whole(tmp_path: Path) -> None:
    folder = copy_of("changing", tmp_path)
    manifest = folder / "dc2_r1" / "manifest.json"
    manifest.write_text(manifest.read_text()[:400])
    (folder / "netsense_r1" / "steps.parquet").write_bytes((folder / "netsense_r1" / "steps.parquet").read_bytes()[:500])
    text = render(folder)
    assert "3 runs: 1 valid, 2 incomplete or damaged" in text
    assert "run dc2_r1: manifest.json cannot be read" in text
    assert "run netsense_r1: steps.parquet cannot be read" in text
    assert text.count('<details class="run"') == 2
    assert "293 samples/s" in text  # of none


def test_a_folder_of_an_older_testbed_shows_what_it_has(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    for run in ("none", "netsense-sdn"):
        path = folder / run / "manifest.json"
        kept = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("schema", "checks", "cpu", "prediction")}
        path.write_text(json.dumps(kept))
        steps = pd.read_parquet(folder / run / "steps.parquet")
        steps.drop(columns=["wire_bytes_sent", "wire_bytes_received"]).to_parquet(folder / run / "steps.parquet")
    text = render(folder)
    assert "written by an older testbed, what it did not record is left empty: none, netsense-sdn" in text
    assert "2 runs: 2 valid" in text
    assert "174 samples/s" in text


def test_bottlenecks_of_different_kinds_are_told_apart() -> None:
    (none, _) = load(DATA / "cond").runs
    assert words.network_words(none) == (
        "4 workers on a dumbbell, bottleneck of 20 Mbit/s, 5 ms one way, 25 kB queue, bottleneck of 100 Mbit/s, 125 kB queue"
    )


def test_workers_in_containers_are_told_as_such() -> None:
    (none, _) = load(DATA / "cond").runs
    boxed = replace(none, manifest={**none.manifest, "containers": {"name": "netsense-worker"}})
    assert words.network_words(boxed).startswith("4 workers in containers on a dumbbell")


def test_a_newer_layout_is_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy_of("cond", tmp_path)
    change(folder / "experiment.json", schema=99)
    assert main([str(folder)]) == 2
    assert "has schema 99; this testbed reads up to 1. Update the testbed" in capsys.readouterr().err


def test_a_folder_that_mixes_experiments_shows_both_and_says_so(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    shutil.copytree(DATA / "rivals" / "topk-0.1", folder / "topk-0.1")
    text = render(folder)
    assert "1 of 3 runs is not compared with the rest, as it is of another experiment, rivals: topk-0.1" in text
    assert text.count('<details class="run"') == 3
    row = text.partition("<tbody>")[2].partition("</tbody>")[0].partition("Top-k 0.1")[2]
    assert "not compared: is of another experiment, rivals" in row
    assert "x</td>" not in row  # no speed-up
    assert '<option value="1">topk-0.1 alone</option>' in text


def test_a_run_that_says_what_nobody_thought_of_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write, "FIGURES", {})
    folder = copy_of("cond", tmp_path)
    path = folder / "none" / "manifest.json"
    network = json.loads(path.read_text())["network"]
    change(path, network={**network, "hosts": 5})
    assert main([str(folder)]) == 0
    assert "run none: its manifest or tables say what cannot be understood (TypeError: " in capsys.readouterr().err
    text = unescape((folder / "report.html").read_text())
    assert text.count('<details class="run"') == 1 and "NetSenseML + SDN" in text

    change(folder / "netsense-sdn" / "manifest.json", network={**network, "hosts": 5})
    assert main([str(folder)]) == 2
    assert "has no run that can be shown" in capsys.readouterr().err


def test_a_repeat_of_another_experiment_has_a_row_of_its_own(tmp_path: Path) -> None:
    folder = copy_of("train", tmp_path)
    change(folder / "topk-0.1_r2" / "manifest.json", experiment="other")
    rows = [row for row in render(folder).partition("<tbody>")[2].partition("</tbody>")[0].split("<tr") if "Top-k 0.1<" in row]
    assert [">1 of 1</td>" in row for row in rows] == [True, True]
    assert ["not compared: is of another experiment, other" in row for row in rows] == [False, True]


def test_the_report_needs_nothing_but_the_analysis_and_the_files(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    command = [sys.executable, "-c", ALONE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=DATA.parents[1], timeout=200, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NetSenseML + SDN" in (folder / "report.html").read_text()
    assert (folder / "figures" / "throughput.png").exists()
