"""When the regret is drawn, and what else is said of a cell; its numbers on real runs are in test_figures_stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import bars, lines, texts
from synthetic_results import FakeRun, rewrite, write_experiment

from analysis import load
from analysis.figures import regret
from analysis.load import Results

NEVER = (0.1, 0.2, 0.3)


def results(folder: Path, runs: list[FakeRun], adaptive: str = "netsense") -> Results:
    """Return an experiment in which the ratio of one scheme follows the step."""
    written = write_experiment(folder, runs)
    for run in runs:
        if run.scheme == adaptive:
            rewrite(written / run.slug, "steps", ratio=lambda steps: 1 / (1 + steps["step"]))
    return load(written)


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([FakeRun("none", workload="replay")], "nothing was trained"),
        ([FakeRun("none"), FakeRun("topk-0.1")], "no adaptive scheme was trained"),
        ([FakeRun("none"), FakeRun("netsense")], "no fixed ratio (topk-...) was trained beside an adaptive scheme"),
        (
            [FakeRun("none"), FakeRun("netsense"), FakeRun("topk-0.1", accuracies=NEVER)],
            "no fixed ratio reached the target with more than half of its seeds",
        ),
    ],
    ids=["replay", "fixed only", "adaptive only", "never reached"],
)
def test_without_an_oracle_it_says_why_there_is_nothing(tmp_path: Path, runs: list[FakeRun], why: str) -> None:
    mine = results(tmp_path / "x", runs)
    assert regret.reason(mine) == why
    assert regret.draw(mine) is None


def test_each_cell_has_its_own_oracle_and_one_without_is_left_out(tmp_path: Path) -> None:
    runs = []
    for rate, fastest in (("1mbit", "topk-0.1"), ("2mbit", "topk-0.01"), ("3mbit", None)):
        cell = {"topology.bottleneck.rate": rate}
        runs += [FakeRun("none", step_s=1.0, cell=cell), FakeRun("netsense", step_s=0.3, cell=cell)]
        for slug in ("topk-0.1", "topk-0.01"):
            reached = {"accuracies": NEVER} if fastest is None else {}
            runs.append(FakeRun(slug, step_s=0.2 if slug == fastest else 0.4, cell=cell, **reached))
    figure = regret.draw(results(tmp_path / "x", runs))
    assert figure is not None
    assert [axes.get_title("left") for axes in figure.axes] == ["rate 1mbit", "rate 2mbit"]
    assert {"oracle topk-0.1", "oracle topk-0.01"} <= set(lines(figure))
    assert texts(figure).count("regret +50 %") == 2


def test_a_scheme_without_a_valid_run_has_no_bar(tmp_path: Path) -> None:
    runs = [FakeRun("none"), FakeRun("topk-0.1"), FakeRun("netsense"), FakeRun("dc2", invalid_reasons=("bad",))]
    figure = regret.draw(results(tmp_path / "x", runs))
    assert figure is not None
    assert set(bars(figure)) == {"none", "topk-0.1", "netsense"}
    assert "no valid run" in texts(figure)
