"""The papers' claims: what is measured for them, how they are judged, and what is written of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_results import WORKERS, FakeRun, write_experiment

from analysis import load
from analysis.papers import hold, papers, write
from analysis.papers.claims import AtLeast, Claim, Factor, Finding, Paper, Sample, Study
from analysis.papers.drawing import draw
from analysis.papers.measures import (
    FASTEST,
    SLOWEST,
    faster,
    faster_once_settled,
    fewer_bits,
    growth,
    points_at_equal_steps,
    points_at_equal_time,
    sooner,
)
from analysis.papers.table import markdown, ours_words, rows

RATE = "topology.bottleneck.rate_bps"


def experiments(folder, *runs):
    return {"study": load(write_experiment(folder / "study", list(runs)))}


@pytest.mark.parametrize(
    ("published", "values", "verdict"),
    [
        (Factor(1.55, 9.84), [2.0, 9.0], "reproduced"),
        (Factor(1.55, 9.84), [2.0, 30.0], "reproduced"),  # nowhere less
        (Factor(1.55, 9.84), [1.1, 2.0], "in part"),
        (Factor(1.55, 9.84), [1.1, 30.0], "in part"),
        (Factor(1.55, 9.84), [1.45], "reproduced"),  # within a fifth of a gain of 0.55
        (Factor(1.55, 9.84), [1.43], "weaker"),
        (Factor(1.3, 1.55), [1.08, 1.17], "weaker"),  # half the gain, though 0.9 of the factor
        (Factor(1.55, 9.84), [0.9, 0.5], "not reproduced"),
        (Factor(1.55, 9.84), [12.0, 20.0], "stronger"),
        (Factor(None, 41), [1.0, 33.0], "reproduced"),
        (Factor(None, 41), [32.9], "weaker"),
        (Factor(None, 41), [1.0, 50.0], "stronger"),
        (Factor(None, 41), [0.99], "not reproduced"),
        (AtLeast(1.0), [1.01, 3.0], "reproduced"),
        (AtLeast(1.0), [1.0, 3.0], "in part"),
        (AtLeast(1.0), [0.4, 1.0], "not reproduced"),
        (AtLeast(-1.0, "points"), [-1.0], "reproduced"),
        (AtLeast(-1.0, "points"), [-1.1], "not reproduced"),
    ],
)
def test_verdicts(published, values, verdict):
    assert published.verdict(values) == verdict


def test_ours_over_theirs_is_by_the_largest():
    assert Factor(None, 41).ratio([10.0, 20.5]) == pytest.approx(0.5)
    assert Factor(1.55, 9.84).ratio([9.84, 2.0]) == pytest.approx(1.0)
    assert AtLeast(1.0).ratio([2.0]) is None


def test_a_gain_is_of_valid_runs_in_the_same_cell_and_the_slowest_link_comes_first(tmp_path):
    fast, slow = {RATE: 80e6}, {RATE: 10e6}
    found = experiments(
        tmp_path,
        FakeRun("none", step_s=0.2, cell=fast),
        FakeRun("dc2", step_s=0.1, cell=fast),
        FakeRun("none", step_s=0.8, cell=slow),
        FakeRun("dc2", step_s=0.1, cell=slow),
        FakeRun("none", step_s=0.4, cell={RATE: 40e6}),
        FakeRun("dc2", step_s=0.1, cell={RATE: 40e6}, invalid_reasons=("fidelity 0.9",)),
    )
    gains = faster(found, "study", "dc2", "none")
    assert [sample.value for sample in gains] == pytest.approx([8.0, 2.0])
    assert "10 Mbit/s" in gains[0].where
    assert [sample.value for sample in growth(found, "study", "dc2", "none")] == pytest.approx([4.0])
    assert faster(found, "another", "dc2", "none") == []
    assert faster(found, "study", "dc2", "fp16") == []


def test_a_cell_is_chosen_by_its_rate_even_if_nothing_in_it_counts(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", step_s=0.2, cell={RATE: 80e6}),
        FakeRun("dc2", step_s=0.1, cell={RATE: 80e6}),
        FakeRun("none", step_s=0.8, cell={RATE: 10e6}),
        FakeRun("dc2", step_s=0.1, cell={RATE: 10e6}, invalid_reasons=("fidelity 0.9",)),
    )
    assert faster(found, "study", "dc2", "none", SLOWEST) == []
    assert [sample.value for sample in faster(found, "study", "dc2", "none", FASTEST)] == pytest.approx([2.0])
    assert growth(found, "study", "dc2", "none") == []


def test_a_settled_gain_is_by_the_median_step(tmp_path):
    found = experiments(tmp_path, FakeRun("none", step_s=0.4, steps=9), FakeRun("dc2", step_s=0.1, steps=9))
    path = tmp_path / "study" / "dc2-train-0" / "steps.parquet"
    steps = pd.read_parquet(path)
    steps.loc[steps["step"] < 4, "step_s"] = 5.0  # on its way down
    steps.to_parquet(path)
    (gain,) = faster_once_settled(found, "study", "dc2", "none")
    assert gain.value == pytest.approx(4.0)


def test_repeats_are_paired_and_their_median_counts(tmp_path):
    runs = [FakeRun("none", step_s=step_s, repeat=n) for n, step_s in enumerate((0.2, 0.4, 0.9), 1)]
    runs += [FakeRun("dc2", step_s=0.1, repeat=n) for n in (1, 2, 3, 4)]
    (gain,) = faster(experiments(tmp_path, *runs), "study", "dc2", "none")
    assert gain.value == pytest.approx(4.0)


def test_the_time_to_an_accuracy_is_to_the_highest_that_both_reached(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", step_s=1.0, steps=30, accuracies=(0.1, 0.2, 0.3)),
        FakeRun("dc2", step_s=0.1, steps=30, accuracies=(0.2, 0.3, 0.9)),
    )
    (sample,) = sooner(found, "study", "dc2", "none")
    assert sample.value == pytest.approx(30 / 2)


def test_accuracy_at_equal_steps_and_at_equal_time(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", steps=30, accuracies=(0.3, 0.6, 0.9)),
        FakeRun("dc2", steps=60, accuracies=(0.4, 0.7, 0.8)),  # after 20, 40 and 60 steps
    )
    (points,) = points_at_equal_steps(found, "study", "dc2", "none")
    assert points.value == pytest.approx(100 * (0.55 - 0.9))
    (points,) = points_at_equal_time(found, "study", "dc2", "none")
    assert points.value == pytest.approx(-10)


def test_bits_are_those_of_one_payload_however_far_it_travels(tmp_path):
    values = 100_000  # of the synthetic gradient
    payload = values // 8  # one bit a value
    found = experiments(tmp_path, FakeRun("3lc", bytes_sent=payload * (WORKERS - 1)))
    (sample,) = fewer_bits(found, "study", "3lc")
    assert sample.value == pytest.approx(32)


def test_every_paper_names_its_studies_and_can_do_without_results():
    known = papers()
    assert list(known) == ["netsenseml", "dc2", "3lc"]
    for paper in known.values():
        studies = {study.experiment for study in paper.studies}
        assert {name for claim in paper.claims for name in claim.studies} == studies
        assert len({claim.name for claim in paper.claims}) == len(paper.claims)
        findings = hold(paper, {})
        assert {finding.verdict for finding in findings} == {"not measured"}
        assert all(finding.left_out for finding in findings)


def claim(published, samples, **more):
    whole = Claim("gain", "faster", "fact", published, "throughput", ("study",), lambda _: samples, "other hardware")
    return replace(whole, **more)


def finding(published, *samples, **more):
    one = claim(published, list(samples), **more)
    return Finding(Paper("p", "P (Conf 2020)", 1, (Study("study", None),), (one,)), one, list(samples), ["study/x is missing"])


def test_what_is_not_valid_or_missing_is_named(tmp_path):
    found = {
        "study": load(
            write_experiment(tmp_path / "study", [FakeRun("none"), FakeRun("dc2", invalid_reasons=("fidelity 0.9",))], ("fp16-train-0",))
        )
    }
    paper = Paper("p", "P", 1, (Study("study", None),), (claim(Factor(None, 2), []),))
    (one,) = hold(paper, found)
    assert any("fp16-train-0 is missing" in text for text in one.left_out)
    assert any("dc2" in text and "fidelity 0.9" in text for text in one.left_out)
    assert not any("/none" in text for text in one.left_out)


def test_the_table_says_published_ours_ratio_verdict_and_why(tmp_path):
    findings = [
        finding(Factor(None, 40), Sample("low", 20.0), Sample("high", 10.0)),
        finding(AtLeast(-1, "points"), Sample("", -2.34), name="points", standing="recalled"),
        finding(Factor(1, 2), name="nothing"),
    ]
    assert [ours_words(one) for one in findings] == ["10 to 20x", "-2.34 points", "-"]
    text = markdown(findings)
    assert "| faster | up to 40x (fact) | 10 to 20x<br>throughput | 0.50 | **weaker** | other hardware |" in text
    assert "**not measured**" in text and "at least -1 points (recalled)" in text
    assert "low: 20x; high: 10x" in text and "not counted: study/x is missing" in text

    paths = write(findings, tmp_path / "out", "# Ours")
    assert {path.name for path in paths} == {f"reproduction.{ending}" for ending in ("md", "csv", "json", "png", "pdf")}
    assert all(path.stat().st_size for path in paths)
    stored = json.loads((tmp_path / "out" / "reproduction.json").read_text())
    assert stored == rows(findings)
    assert stored[0]["cells"] == {"low": 20.0, "high": 10.0}
    table = pd.read_csv(tmp_path / "out" / "reproduction.csv")
    assert table["verdict"].tolist() == ["weaker", "not reproduced", "not measured"]
    assert math.isnan(table["ratio"][2])


def test_the_figure_draws_the_published_range_and_every_value_of_ours():
    figure = draw(
        [finding(Factor(2, 8), Sample("a", 3.0), Sample("b", 4.0)), finding(AtLeast(0, "points"), Sample("", -5.0), name="points")]
    )
    first, second = figure.axes
    ours = [line.get_xdata()[0] for line in first.lines if line.get_gid() == "p gain ours"]
    assert ours == [3.0, 4.0]
    (band,) = [patch for patch in first.patches if patch.get_gid() == "p gain published"]
    assert (band.get_x(), band.get_x() + band.get_width()) == pytest.approx((2, 8))
    assert second.get_xlim()[0] < -5 < 0 < second.get_xlim()[1]
    assert "not reproduced" in [text.get_text() for text in second.texts]


def test_a_figure_of_nothing_can_be_drawn():
    assert draw([]).axes
