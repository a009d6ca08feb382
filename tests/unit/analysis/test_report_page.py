"""report.html: everything the experiment was, in one file that needs nothing else; on stored results of real runs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from stored_results import change, copy_of
from synthetic_results import FakeRun, write_experiment

from analysis import ResultsError, load, summarise, write_report
from analysis.figures import FIGURES
from analysis.report import html, page
from analysis.report.write import main

HOSTILE = '</script><img src=x onerror="document.title=1">'


@pytest.fixture(scope="module")
def mishaps(reported: Callable[[str], Path]) -> tuple[Path, str]:
    folder = reported("mishaps")
    return folder, (folder / "report.html").read_text()


class Links(HTMLParser):
    """Gather every address a page names, and the identities it defines."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.names += [value or "" for name, value in attrs if name == "id"]


def render(folder: Path) -> str:
    """Make the page without its figures, which take most of the time."""
    results = load(folder)
    rows = summarise(results)
    return html.render(page.gather(results, rows, {}, {}, results.problems))


def test_the_file_needs_no_other_and_its_links_lead_somewhere(mishaps: tuple[Path, str]) -> None:
    found = Links(mishaps[1])
    assert {address for address in found.addresses if not address.startswith(("data:", "#"))} == set()
    assert {address[1:] for address in found.addresses if address.startswith("#")} <= set(found.names)
    assert len(found.names) == len(set(found.names))
    assert re.search(r"@import|url\((?!#)", mishaps[1]) is None


def test_every_figure_that_was_drawn_is_in_it_and_the_others_say_why_not(mishaps: tuple[Path, str]) -> None:
    folder, text = mishaps
    pictures = sorted((folder / "figures").glob("*.png"))
    assert text.count("<img ") == len(pictures) > 3
    assert "could not be drawn" not in text
    results = load(folder)
    for name in set(FIGURES) - {picture.stem for picture in pictures}:
        assert f"{FIGURES[name].title}: {FIGURES[name].reason(results)}" in unescape(text)


def test_what_is_not_valid_is_marked_with_its_reason(mishaps: tuple[Path, str]) -> None:
    text = unescape(mishaps[1])
    assert "5 runs: 1 valid, 1 not valid, 2 incomplete or damaged, 1 missing" in text
    for run in load(mishaps[0]).runs:
        assert all(reason in text for reason in run.invalid_reasons)
    assert "3lc_r1: planned, and not there" in text
    assert len(re.findall(r'<tr class="invalid">', text)) == 3


def test_the_experiment_can_be_done_again_from_it(mishaps: tuple[Path, str]) -> None:
    folder, text = mishaps
    experiment = json.loads((folder / "experiment.json").read_text())
    commit = json.loads((folder / "none_r1" / "manifest.json").read_text())["git_commit"].removesuffix("-dirty")
    assert f'<pre id="spec">{experiment["file"]}</pre>' in unescape(text)
    assert f"git checkout {commit}\n" in text
    assert "testbed sweep changing.yaml" in text
    assert experiment["spec"]["description"] in text


def test_what_a_checkout_does_not_bring_back_is_said_beside_it(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    said = render(folder).partition("git checkout")[2].partition("Experiment file")[0]
    assert "commit" not in said
    change(folder / "netsense-sdn" / "manifest.json", git_commit="0123456789ab-dirty")
    said = render(folder).partition("git checkout 33d1f39a0dc7\n")[2].partition("Experiment file")[0]
    assert "The runs are of 2 commits (33d1f39a0dc7, 0123456789ab); this is the first run&#39;s." in said
    assert "1 of 2 runs had changes that were not committed: a checkout is without them." in said


def test_every_runs_network_is_told_as_it_was_measured(mishaps: tuple[Path, str]) -> None:
    manifest = json.loads((mishaps[0] / "none_r1" / "manifest.json").read_text())
    part = mishaps[1].partition('<details class="run"')[2].partition("</details>")[0]
    for rate in manifest["verification"]["rates"]:
        assert unescape(part).count(rate["direction"]) >= 1
    assert f"{manifest['fidelity']['directions']['bottleneck:s1->s2']['value']:.3f}" in part
    assert all(f"<td>{check['name']}</td>" in unescape(part) for check in manifest["checks"])


def test_conditions_and_what_became_of_them_are_told(tmp_path: Path) -> None:
    text = unescape(render(copy_of("cond", tmp_path)))
    assert "<td>at 4 s</td><td>bottleneck rate 5 Mbit/s</td>" in text
    assert "<td>at 8 s</td><td>bottleneck rate 40 Mbit/s, delay 20 ms</td>" in text
    assert "bottleneck: down" in text.partition('id="runs"')[2]


def test_intervals_over_repeats_stand_under_their_medians_and_may_be_open(tmp_path: Path) -> None:
    text = unescape(render(copy_of("train", tmp_path)))
    row = text.partition("<tbody>")[2].partition("Top-k 0.1<")[2].partition("</tr>")[0]
    assert all(f"<small>{ends}</small>" in row for ends in ("322 to 578", "1.43 to 2.57", "60.9 to 76.0", "to 60.4 %; 7.1 to 9.3 s"))
    spec = {"spec": {"workload": {"kind": "train", "batch_size": 32, "target_accuracy": 0.85}}}
    runs = [FakeRun("none", step_s=0.1 * n, accuracies=(0.9 * (n < 6),), repeat=n, manifest=spec) for n in range(1, 7)]
    assert "<small>to 85.0 %; from 2.0 s</small>" in render(write_experiment(tmp_path / "open", runs))


def test_repeats_are_one_row_and_every_run_has_its_part(tmp_path: Path) -> None:
    folder = copy_of("train", tmp_path)
    results, text = load(folder), render(folder)
    assert text.partition("<tbody>")[2].partition("</tbody>")[0].count("<tr") == 5
    assert text.count('<details class="run"') == len(results.runs) == 9
    none = text.partition("<tbody>")[2].partition("</tr>")[0]
    assert "Uncompressed" in none and ">reached by 1 of 2<small>to " in none


def test_a_sweep_has_its_fields_as_columns_that_sort_by_number(tmp_path: Path) -> None:
    text = render(copy_of("grid", tmp_path))
    head = re.findall(r"<button type=\"button\">(.*?)</button></th>", text)
    assert head[:3] == ["Scheme", "Rate", "Delay"]
    cells = load(copy_of("grid", tmp_path / "again")).frames.runs.drop_duplicates("topology.bottleneck.rate_bps")
    assert all(f'data-sort="{rate_bps}"' in text for rate_bps in cells["topology.bottleneck.rate_bps"])
    assert text.count("<option") == 4


def test_text_of_a_manifest_stays_text(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    change(folder / "experiment.json", name=HOSTILE, file=HOSTILE, command=HOSTILE)
    change(folder / "none" / "manifest.json", scheme_label=HOSTILE, valid=False, invalid_reasons=[HOSTILE], experiment=HOSTILE)
    text = render(folder)
    assert HOSTILE not in text
    assert 'onerror="' not in text
    series = text.partition('id="series">')[2].partition("</script>")[0]
    assert json.loads(series)[0]["runs"][0]["label"] == HOSTILE


@pytest.mark.parametrize("junk", [None, 5, "words", [], [1, None], {}, {"a": 1}], ids=str)
def test_a_manifest_of_junk_spoils_only_its_own_run(tmp_path: Path, junk: Any) -> None:
    folder = copy_of("cond", tmp_path)
    manifest = json.loads((folder / "none" / "manifest.json").read_text())
    kept = ("schema", "status", "valid", "scheme")
    (folder / "none" / "manifest.json").write_text(json.dumps({key: manifest[key] if key in kept else junk for key in manifest}))
    text = render(folder)
    assert text.count('<details class="run"') == 2
    assert "NetSenseML" in text


@pytest.mark.usefixtures("few_figures")
def test_one_damaged_run_does_not_hide_the_rest(tmp_path: Path) -> None:
    folder = copy_of("cond", tmp_path)
    (folder / "none" / "links.parquet").write_bytes(b"PAR1")
    report = write_report(folder)
    text = (folder / "report.html").read_text()
    assert [problem.partition(" (")[0] for problem in report.problems] == ["run none: links.parquet cannot be read"]
    assert report.summary.set_index("run")["status"].to_dict() == {"none": "damaged", "netsense-sdn": "complete"}
    assert "2 runs: 1 valid, 1 incomplete or damaged" in text
    assert len(list((folder / "figures").glob("*.png"))) == 2


@pytest.mark.usefixtures("few_figures")
def test_a_figure_that_fails_is_told_and_the_others_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_of("cond", tmp_path)

    def fail(results: object) -> None:
        raise KeyError("bytes")

    broken = type(FIGURES["bytes_step"])(**{**vars(FIGURES["bytes_step"]), "draw": fail})
    monkeypatch.setitem(FIGURES, "bytes_step", broken)
    report = write_report(folder)
    assert report.problems == ["figure bytes_step could not be drawn (KeyError: 'bytes')"]
    assert (folder / "figures" / "throughput.png").exists()
    assert "could not be drawn" in (folder / "report.html").read_text()


@pytest.mark.usefixtures("few_figures")
def test_many_runs_are_reported_by_several_processes_as_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several, alone = copy_of("grid", tmp_path / "a"), copy_of("grid", tmp_path / "b")
    monkeypatch.setattr("analysis.parallel.processors", lambda: 3)
    write_report(several)
    monkeypatch.setattr("analysis.parallel.processors", lambda: 1)
    write_report(alone)
    assert (several / "summary.csv").read_text() == (alone / "summary.csv").read_text()
    pages = [re.sub(r"report of .*?UTC", "", (folder / "report.html").read_text()) for folder in (several, alone)]
    assert pages[0] == pages[1]


@pytest.mark.usefixtures("few_figures")
def test_a_folder_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of("cond", tmp_path)

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ResultsError, match=r"cannot be written to \(Permission denied\)\. Copy it"):
        write_report(folder)
    assert main([str(folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.usefixtures("few_figures")
def test_the_module_alone_writes_it_or_says_what_it_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main([str(tmp_path / "nowhere")]) == 2
    said = capsys.readouterr()
    assert "Give one results folder" in said.err
    assert "is not a folder" in said.err
    folder = copy_of("cond", tmp_path)
    shutil.rmtree(folder / "none")
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"report: {folder / 'report.html'}\n"
