"""The papers' claims: what is measured for them, how they are judged, and what is written of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_results import WORKERS, FakeRun, rewrite, write_experiment

from analysis import load, metrics
from analysis.papers import hold, papers, write
from analysis.papers.claims import AtLeast, Claim, Factor, Finding, Paper, Sample, Study
from analysis.papers.drawing import COLOURS, draw
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


def unmeasured(samples):
    return len(samples) == 1 and math.isnan(samples[0].value)


@pytest.mark.parametrize(
    ("published", "values", "verdict"),
    [
        (Factor(1.55, 9.84), [2.0, 9.0], "reproduced"),
        (Factor(1.55, 9.84), [2.0, 30.0], "in part"),
        (Factor(1.55, 9.84), [1.1, 2.0], "in part"),
        (Factor(1.55, 9.84), [0.9, 2.0], "in part"),
        (Factor(1.55, 9.84), [1.1, 30.0], "in part"),  # less here, more there
        (Factor(1.55, 9.84), [0.5, 1.4], "not reproduced"),  # the other direction somewhere, in the range nowhere
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
        (AtLeast(1.0), [0.9, 3.0], "in part"),
        (AtLeast(1.0), [0.4, 0.9], "not reproduced"),
        (AtLeast(1.0), [1.0], "not reproduced"),  # over 1x is more than the same
        (AtLeast(-1.0, "points"), [-1.0], "reproduced"),
        (AtLeast(-1.0, "points"), [-1.1], "not reproduced"),
    ],
)
def test_verdicts(published, values, verdict):
    assert published.verdict([Sample("", value) for value in values]) == verdict


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([(1.11, 0.2)], "inconclusive"),
        ([(0.95, 0.2)], "inconclusive"),
        ([(1.11, 0.2), (3.0, 0.1)], "inconclusive"),  # it may not hold everywhere
        ([(1.11, 0.2), (0.5, 0.1)], "not reproduced"),
        ([(1.5, 0.2), (0.5, 0.1)], "in part"),
        ([(1.5, 0.2), (1.3, 0.29)], "reproduced"),
    ],
)
def test_a_bound_is_held_or_missed_only_beyond_what_a_value_may_be_off(samples, verdict):
    assert AtLeast(1.0).verdict([Sample("", value, margin) for value, margin in samples]) == verdict


@pytest.mark.parametrize(
    ("published", "value", "margin", "verdict"),
    [
        (Factor(16, 23), 14.7, 2.9, "inconclusive"),  # weaker at 11.8
        (Factor(16, 23), 14.7, 1.0, "reproduced"),
        (Factor(None, 41), 43.0, 9.0, "reproduced"),  # stronger at 52: no less than was claimed
        (Factor(None, 41), 43.0, 15.0, "inconclusive"),
        (Factor(39, 39), 30.0, 0.6, "weaker"),
        (Factor(39, 39), 45.0, 0.9, "reproduced"),
    ],
)
def test_a_factor_is_in_its_range_or_out_of_it_only_beyond_what_it_may_be_off(published, value, margin, verdict):
    assert published.verdict([Sample("", value, margin)]) == verdict


def test_what_repeats_differ_by_is_in_what_their_median_may_be_off(tmp_path):
    runs = [FakeRun("none", step_s=0.9, repeat=1), FakeRun("none", step_s=1.04, repeat=2), FakeRun("none", step_s=1.3, repeat=3)]
    runs += [FakeRun("dc2", step_s=1.0, repeat=repeat) for repeat in (1, 2, 3)]
    (gain,) = faster(experiments(tmp_path, *runs), "study", "dc2", "none")
    assert gain.value == pytest.approx(1.04)
    assert gain.margin == pytest.approx(1.08 + 4.303 * 0.2030 / 3**0.5 - 1.04, rel=1e-3)  # Student's, about the mean of 1.08
    assert AtLeast(1.0).verdict([gain]) == "inconclusive"


def test_a_median_step_may_be_off_by_what_steps_differ(tmp_path):
    found = experiments(tmp_path, FakeRun("none", step_s=1.0), FakeRun("dc2", step_s=0.5))
    (steady,) = faster_once_settled(found, "study", "dc2", "none")
    assert steady.margin == pytest.approx(0.02 * 2)
    rewrite(tmp_path / "study/none-train-0", "steps", step_s=lambda steps: steps["step_s"] * (1 + 0.1 * (steps["step"] % 3)))
    (scattered,) = faster_once_settled({"study": load(tmp_path / "study")}, "study", "dc2", "none")
    assert scattered.value == pytest.approx(2.2)
    assert scattered.margin == pytest.approx(2.2 * (0.02 + 0.1 / 1.1))


@pytest.mark.parametrize(
    ("published", "verdict"),
    [(AtLeast(1.0), "in part"), (Factor(1.5, 3), "in part"), (Factor(None, 2), "reproduced"), (Factor(4, 5), "weaker")],
)
def test_a_cell_that_was_not_measured_leaves_open_what_is_said_of_every_cell(published, verdict):
    one = claim(published, [Sample("here", 2.0), Sample("there", math.nan)])
    (found,) = hold(Paper("p", "P", 1, (Study("study", None),), (one,)), {})
    assert (found.verdict, found.lacking, found.values) == (verdict, 1, [2.0])
    assert "the rest was not measured" in markdown([found])


@pytest.mark.parametrize(("over_cells", "verdict"), [(True, "in part"), (False, "reproduced")])
def test_a_shorter_sweep_leaves_open_what_is_said_of_every_cell(over_cells, verdict, tmp_path):
    one = claim(AtLeast(1.0), [Sample("the only cell that was asked for", 2.0)], over_cells=over_cells)
    narrow, whole = Study("study", {"sweep": {"rate": ["1mbit"]}}), Study("study", {"workload.budget": {"seconds": 1}})
    assert narrow.narrows and not whole.narrows and not Study("study", None).narrows
    (found,) = hold(Paper("p", "P", 1, (narrow,), (one,)), experiments(tmp_path, FakeRun("none")), narrowed=["study"])
    assert (found.verdict, found.lacking) == (verdict, int(over_cells))
    assert ("study: its other cells are too long for this scale" in found.left_out) is over_cells


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
    assert [sample.value for sample in gains] == pytest.approx([8.0, math.nan, 2.0], nan_ok=True)
    assert "10 Mbit/s" in gains[0].where
    assert [sample.value for sample in growth(found, "study", "dc2", "none")] == pytest.approx([4.0])
    assert unmeasured(faster(found, "another", "dc2", "none"))
    assert faster(found, "study", "dc2", "fp16") == []  # which the study is not meant to have


def test_factors_of_few_steps_may_be_off_by_much(tmp_path):
    runs = [FakeRun("none", step_s=2.0, steps=9), FakeRun("dc2", step_s=1.0, steps=10), FakeRun("3lc", step_s=1.0, steps=10)]
    found = experiments(tmp_path, *runs, FakeRun("qsgd", step_s=0.5, steps=10))
    (few,) = faster(found, "study", "dc2", "none")
    (brief,) = faster(found, "study", "dc2", "qsgd")
    (enough,) = faster(found, "study", "dc2", "3lc")
    assert (few.where, few.margin) == ("9 steps", pytest.approx(0.4))
    assert (brief.where, brief.margin) == ("", pytest.approx(0.1))
    assert (enough.where, enough.margin) == ("", pytest.approx(0.02))


def test_a_throughput_may_be_off_by_what_its_windows_say(tmp_path):
    found = experiments(tmp_path, FakeRun("none", step_s=1.0, steps=12), FakeRun("dc2", step_s=1.0, steps=12))
    rewrite(tmp_path / "study/none-train-0", "steps", step_s=lambda steps: 1.0 + 0.5 * (steps["step"] % 2))
    found = {"study": load(tmp_path / "study")}
    interval = metrics.throughput_interval(found["study"].runs[0].steps)
    (gain,) = faster(found, "study", "dc2", "none")
    assert gain.margin == pytest.approx(gain.value * (0.02 + (interval.high - interval.low) / 2 / (WORKERS * 32 / 1.25)), rel=0.2)
    assert gain.margin > 0.05


def test_a_cell_is_chosen_by_its_rate_even_if_nothing_in_it_counts(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", step_s=0.2, cell={RATE: 80e6}),
        FakeRun("dc2", step_s=0.1, cell={RATE: 80e6}),
        FakeRun("none", step_s=0.8, cell={RATE: 10e6}),
        FakeRun("dc2", step_s=0.1, cell={RATE: 10e6}, invalid_reasons=("fidelity 0.9",)),
    )
    assert unmeasured(faster(found, "study", "dc2", "none", SLOWEST))
    assert [sample.value for sample in faster(found, "study", "dc2", "none", FASTEST)] == pytest.approx([2.0])
    assert unmeasured(growth(found, "study", "dc2", "none"))


def test_which_cell_is_the_slowest_is_not_known_before_all_are_run(tmp_path):
    experiments(tmp_path, FakeRun("none", step_s=0.2, cell={RATE: 80e6}), FakeRun("dc2", step_s=0.1, cell={RATE: 80e6}))
    path = tmp_path / "study" / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"spec": {"sweep": {RATE: [10e6, 80e6]}, "schemes": [{"slug": "fp16"}]}}))
    found = {"study": load(path.parent)}
    assert unmeasured(faster(found, "study", "dc2", "none", SLOWEST)) and unmeasured(faster(found, "study", "dc2", "none", FASTEST))
    assert [sample.value for sample in faster(found, "study", "dc2", "none")] == pytest.approx([2.0, math.nan], nan_ok=True)
    assert all(unmeasured([sample]) for sample in faster(found, "study", "fp16", "none"))  # planned, and not there


def test_growth_is_not_measured_before_all_cells_are_run_and_odd_experiments_break_nothing(tmp_path):
    cells = [FakeRun(scheme, cell={RATE: rate}) for rate in (10e6, 20e6) for scheme in ("none", "dc2")]
    found = experiments(tmp_path, *cells)
    assert [sample.value for sample in growth(found, "study", "dc2", "none")] == [pytest.approx(1.0)]
    planned = replace(found["study"], spec={"sweep": {RATE: [10e6, 20e6, 40e6]}, "schemes": ["none", {"slug": "dc2"}]})
    assert unmeasured(growth({"study": planned}, "study", "dc2", "none"))
    odd = replace(found["study"], spec={"sweep": [RATE], "schemes": "none"})
    assert len(faster({"study": odd}, "study", "dc2", "none")) == 2


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
    assert sample.margin == pytest.approx(15 / 2)  # dc2 was evaluated at 1 and 2 s, and may have been there at any time between


def test_what_the_untrained_model_guessed_counts_for_nothing(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", step_s=1.0, steps=30, accuracies=(0.1, 0.2, 0.3)),
        FakeRun("dc2", step_s=0.1, steps=30, accuracies=(0.1,) * 3),
    )
    for scheme in ("none", "dc2"):
        path = tmp_path / "study" / f"{scheme}-train-0" / "evals.parquet"
        evals = pd.read_parquet(path)
        untrained = evals.head(1).assign(step=0, t_s=0.0, train_s=0.0, accuracy=0.1, final=False)
        pd.concat([untrained, evals]).to_parquet(path)
    (sample,) = sooner(found, "study", "dc2", "none")
    assert sample.value == pytest.approx(10 / 1)


def test_accuracy_at_equal_steps_is_of_evaluations_after_as_many_steps_and_never_in_between(tmp_path):
    found = experiments(
        tmp_path,
        FakeRun("none", steps=30, accuracies=(0.3, 0.6, 0.9)),
        FakeRun("dc2", steps=60, accuracies=(0.4, 0.7, 0.8)),  # after 20, 40 and 60 steps
        FakeRun("3lc", steps=31, accuracies=(0.4, 0.7, 0.8)),  # after 10, 20 and 31 steps
        FakeRun("fp16", steps=31, accuracies=(0.4,)),  # after 31 steps
    )
    (points,) = points_at_equal_steps(found, "study", "dc2", "none")
    assert (points.value, points.where) == (pytest.approx(100 * (0.4 - 0.6)), "after 20 steps")
    assert points.margin == pytest.approx(200 * math.sqrt((0.4 * 0.6 + 0.6 * 0.4) / 1000))
    (points,) = points_at_equal_steps(found, "study", "3lc", "none")
    assert points.value == pytest.approx(100 * (0.7 - 0.6))
    assert unmeasured(points_at_equal_steps(found, "study", "fp16", "none"))


def test_accuracy_at_equal_time_is_at_the_end(tmp_path):
    found = experiments(
        tmp_path, FakeRun("none", steps=30, accuracies=(0.3, 0.6, 0.9)), FakeRun("dc2", steps=60, accuracies=(0.4, 0.7, 0.8))
    )
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
    return Finding(Paper("p", "P (Conf 2020)", 1, (Study("study", None),), (one,)), one, list(samples), 0, ["study/x is missing"])


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
    (one,) = hold(paper, {"study": replace(found["study"], apart={"none-train-0": "has another topology than dc2-train-0"})})
    assert "study/none-train-0 has another topology than dc2-train-0" in one.left_out
    (one,) = hold(paper, {}, {"study": "it is of schema 7"})
    assert one.left_out == ["study: it is of schema 7"]


def test_the_table_says_published_ours_ratio_verdict_and_why(tmp_path):
    findings = [
        finding(Factor(None, 40), Sample("low", 20.0), Sample("high", 10.0)),
        finding(AtLeast(-1, "points"), Sample("", -2.34), name="points", standing="recalled"),
        finding(Factor(1, 2), name="nothing", standing="ours"),
    ]
    assert [ours_words(one) for one in findings] == ["10 to 20x", "-2.34 points", "-"]
    text = markdown(findings)
    assert "| faster | up to 40x (fact) | 10 to 20x<br>throughput | 0.50 | **weaker** | other hardware |" in text
    assert "| nothing; we ask for 1-2x | -<br>throughput | - | **not measured** |" in text and "at least -1 points (recalled)" in text
    assert "low: 20x; high: 10x" in text and "not counted: study/x is missing" in text

    paths = write(findings, tmp_path / "out", "# Ours")
    assert {path.name for path in paths} == {f"reproduction.{ending}" for ending in ("md", "csv", "json", "png", "pdf")}
    assert all(path.stat().st_size for path in paths)
    stored = json.loads((tmp_path / "out" / "reproduction.json").read_text())
    assert stored == rows(findings)
    assert stored[0]["cells"] == {"low": {"value": 20.0, "margin": 0.0}, "high": {"value": 10.0, "margin": 0.0}}
    table = pd.read_csv(tmp_path / "out" / "reproduction.csv")
    assert table["verdict"].tolist() == ["weaker", "not reproduced", "not measured"]
    assert math.isnan(table["ratio"][2])


def test_no_two_verdicts_look_the_same():
    assert len(set(COLOURS.values())) == len(COLOURS)


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
    wide, factor = draw(
        [finding(AtLeast(0, "points"), Sample("", 1.0, 4.0)), finding(Factor(2, 8), Sample("", 3.0, 20.0), Sample("", 2.0, 5.0))]
    ).axes
    for axes in (wide, factor):  # by how much a value may be off is seen whole, but for less than nothing on an axis of factors
        ends = [x for line in axes.lines if line.get_gid() is None for x in line.get_xdata()]
        assert axes.get_xlim()[0] <= min(ends) and max(ends) <= axes.get_xlim()[1]
    assert "not reproduced" in [text.get_text() for text in second.texts]
    assert second.get_xlabel() == "other hardware"


def test_a_figure_of_nothing_can_be_drawn():
    assert draw([]).axes
