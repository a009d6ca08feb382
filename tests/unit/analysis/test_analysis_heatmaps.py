"""Heat maps: the numbers drawn, what is crossed out, what is empty, who wins and who ties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from synthetic_results import FakeRun, write_experiment

from analysis import load, style, summarise
from analysis.figures import FIGURES
from analysis.figures.heatmaps import SPEEDUP, THROUGHPUT, WINNER
from analysis.grids import grids
from analysis.load import Results

RATE, DELAY = "topology.bottleneck.rate", "topology.bottleneck.delay"
SAMPLES = 4 * 32


def run(scheme: str, rate: float, delay: float, step_s: float, **more: Any) -> FakeRun:
    cell = {RATE: rate, DELAY: delay, **more.pop("cell", {})}
    return FakeRun(scheme, step_s=step_s, steps=8, link_samples=2, workload="replay", cell=cell, **more)


# rate, delay: none and 3lc; at 80 Mbit/s compression should not win. 3lc was never run at 80 Mbit/s and 20 ms.
RUNS = [
    *(run("none", rate, delay, step_s) for rate, delay, step_s in ((5e6, 0.001, 0.8), (80e6, 0.001, 0.2), (80e6, 0.02, 0.25))),
    *(run("3lc", rate, delay, step_s) for rate, delay, step_s in ((5e6, 0.001, 0.4), (5e6, 0.02, 0.5), (80e6, 0.001, 0.4))),
    run("none", 5e6, 0.02, 1.0, invalid_reasons=("fidelity 0.9 is below 0.98",)),
]


def experiment(folder: Path, runs: list[FakeRun]) -> Results:
    return load(write_experiment(folder / "grid", runs))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return experiment(tmp_path, RUNS)


def maps(figure: Figure | None) -> dict[str, np.ndarray]:
    """Return the numbers behind each map, row by row from the lowest y up, NaN where nothing is coloured."""
    assert figure is not None
    meshes = [mesh for axes in figure.axes for mesh in axes.collections if isinstance(mesh, QuadMesh) and mesh.get_gid()]
    return {str(mesh.get_gid()): np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan) for mesh in meshes}


def marks(figure: Figure | None, title: str | None = None) -> dict[tuple[float, float], Rectangle]:
    """Return the rectangles of a panel by column and row."""
    assert figure is not None
    axes = next(axes for axes in figure.axes if title is None or axes.get_title("left") == title)
    return {patch.get_xy(): patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_gid()}


def texts(figure: Figure | None) -> list[str]:
    assert figure is not None
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_throughput_is_drawn_by_delay_over_rate_and_only_what_is_valid_has_a_colour(results: Results) -> None:
    figure = THROUGHPUT.draw(results)
    drawn = maps(figure)
    np.testing.assert_allclose(drawn["none"], [[SAMPLES / 0.8, SAMPLES / 0.2], [np.nan, SAMPLES / 0.25]])
    np.testing.assert_allclose(drawn["3lc"], [[SAMPLES / 0.4, SAMPLES / 0.4], [SAMPLES / 0.5, np.nan]])
    crossed, empty = marks(figure, "No compression")[0, 1], marks(figure, "3LC")[1, 1]
    assert (crossed.get_gid(), crossed.get_hatch()) == ("not valid", style.INVALID_HATCH)
    assert (empty.get_gid(), empty.get_hatch()) == ("no data", None)
    assert "128" in texts(figure)  # the number that is not valid is told, not coloured
    assert {"not valid", "no data", "5", "80", "1", "20"} <= set(texts(figure))
    assert {"bottleneck rate (Mbit/s)", "bottleneck delay, one way (ms)"} <= set(texts(figure))


def test_all_maps_of_a_figure_have_the_same_colours(results: Results) -> None:
    figure = THROUGHPUT.draw(results)
    assert figure is not None
    norms = {id(mesh.norm) for axes in figure.axes for mesh in axes.collections if isinstance(mesh, QuadMesh) and mesh.get_gid()}
    assert len(norms) == 1


def test_speedup_is_over_a_valid_none_of_the_same_cell(results: Results) -> None:
    figure = SPEEDUP.draw(results)
    drawn = maps(figure)
    assert list(drawn) == ["3lc"]
    np.testing.assert_allclose(drawn["3lc"], [[2.0, 0.5], [np.nan, np.nan]])
    assert {"2.00x", "0.50x"} <= set(texts(figure))
    mesh = next(mesh for axes in figure.axes for mesh in axes.collections if isinstance(mesh, QuadMesh))  # type: ignore[union-attr]
    assert mesh.norm(1.0) == pytest.approx(0.5)  # neither faster nor slower: the middle of the colours


def test_the_winner_is_named_with_its_margin(results: Results) -> None:
    figure = WINNER.draw(results)
    drawn = marks(figure)
    assert {place: str(patch.get_gid()) for place, patch in drawn.items()} == {
        (0, 0): "3lc 5e+06 0.001",
        (1, 0): "none 8e+07 0.001",
        (0, 1): "3lc 5e+06 0.02",
        (1, 1): "none 8e+07 0.02",
    }
    said = texts(figure)
    assert "3LC\n+100 %" in said
    assert "No compression\n+100 %" in said
    assert "3LC\nalone*" in said
    assert any("* Not every scheme has a valid run here." in " ".join(text.split()) for text in said)


def test_a_tie_within_the_intervals_is_said_and_pale(tmp_path: Path) -> None:
    times = {"none": (0.50, 0.52, 0.48), "3lc": (0.49, 0.50, 0.51), "dc2": (0.1, 0.101, 0.099)}
    runs = [
        run(scheme, rate, delay, step_s, repeat=repeat)
        for rate in (5e6, 80e6)
        for delay in (0.001, 0.02)
        for scheme, steps in times.items()
        for repeat, step_s in enumerate(steps)
        if scheme != "dc2" or rate == 5e6
    ]
    results = experiment(tmp_path, runs)
    grid = grids(results, summarise(results))[0]
    won, tied = grid.winner(5e6, 0.001), grid.winner(80e6, 0.001)
    assert won is not None and (won.scheme, won.tied) == ("dc2", ())
    assert won.margin == pytest.approx(0.5 / 0.1 - 1)
    assert tied is not None and {tied.scheme, *tied.tied} == {"none", "3lc"}
    figure = WINNER.draw(results)
    assert any("\n≈ " in text for text in texts(figure))
    pale, full = marks(figure)[1, 0], marks(figure)[0, 0]
    assert min(pale.get_facecolor()[:3]) > min(full.get_facecolor()[:3])
    assert str(pale.get_gid()).startswith("none ")  # whoever is faster by a hair: compression was not shown to pay


def test_what_the_emulation_cannot_tell_apart_is_a_tie_whatever_the_intervals(tmp_path: Path) -> None:
    times = {"none": 0.5, "3lc": 0.5 / 1.015, "dc2": 0.5 / 1.04}
    runs = [
        run(scheme, rate, delay, step_s, repeat=repeat)
        for scheme, step_s in times.items()
        for rate in (5e6, 80e6)
        for delay in (0.001, 0.02)
        for repeat in range(2)  # without any spread
        if scheme != "dc2" or rate == 5e6
    ]
    results = experiment(tmp_path, runs)
    grid = grids(results, summarise(results))[0]
    won, tied = grid.winner(5e6, 0.001), grid.winner(80e6, 0.001)
    assert won is not None and (won.scheme, won.tied) == ("dc2", ())
    assert tied is not None and (tied.scheme, tied.tied) == ("3lc", ("none",))


def test_a_tie_of_many_names_two_and_counts_the_rest_no_compression_always_named(tmp_path: Path) -> None:
    schemes = ("netsense", "3lc", "dc2", "topk-0.1", "none")
    runs = [
        run(scheme, rate, delay, 0.5 + number / 1000)
        for number, scheme in enumerate(schemes)
        for rate in (5e6, 10e6, 20e6, 40e6, 60e6, 80e6)
        for delay in (0.001, 0.02)
    ]
    cells = {text for text in texts(WINNER.draw(experiment(tmp_path, runs))) if "≈" in text and "+" in text}
    assert cells == {"NETSENSE\n≈ No compression\n≈ 3 more\n+0.2 %"}


def test_cells_are_medians_over_the_valid_repeats(tmp_path: Path) -> None:
    others = [run("none", rate, delay, 0.5) for rate, delay in ((5e6, 0.02), (80e6, 0.001), (80e6, 0.02))]
    repeats = [run("none", 5e6, 0.001, step_s, repeat=number) for number, step_s in enumerate((0.2, 0.25, 1.0))]
    wrong = run("none", 5e6, 0.001, 0.01, repeat=3, invalid_reasons=("slow",))
    assert maps(THROUGHPUT.draw(experiment(tmp_path, [*repeats, wrong, *others])))["none"][0, 0] == pytest.approx(SAMPLES / 0.25)


def test_whatever_else_was_swept_has_maps_of_its_own(tmp_path: Path) -> None:
    losses = (0.0, 0.01, 0.02, 0.03, 0.04)
    runs = [
        run("none", rate, delay, 0.5 + loss, cell={"topology.bottleneck.loss": loss})
        for loss in losses
        for rate in (5e6, 80e6)
        for delay in (0.001, 0.02)
    ]
    figure = THROUGHPUT.draw(experiment(tmp_path, runs))
    drawn = maps(figure)
    assert list(drawn) == [f"none loss {loss:g}" for loss in losses[:4]]
    np.testing.assert_allclose(drawn["none loss 0.03"], SAMPLES / 0.53)
    assert any("Shown: the first 4 of 5 combinations of what else was swept." in " ".join(text.split()) for text in texts(figure))


@pytest.mark.parametrize(
    ("runs", "reasons"),
    [
        ([FakeRun("none"), FakeRun("3lc")], ("fewer than two numbers are swept",) * 3),
        ([run("none", rate, 0.001, 0.5) for rate in (5e6, 80e6)], ("fewer than two numbers are swept",) * 3),
        (
            [run("3lc", rate, delay, 0.5) for rate in (5e6, 80e6) for delay in (0.001, 0.02)],
            (None, "nothing to compare with none", "nothing to compare"),
        ),
    ],
)
def test_what_cannot_be_drawn_has_a_reason(tmp_path: Path, runs: list[FakeRun], reasons: tuple[str | None, ...]) -> None:
    results = experiment(tmp_path, runs)
    for figure, reason in zip((THROUGHPUT, SPEEDUP, WINNER), reasons, strict=True):
        assert figure.reason(results) == reason
        assert (figure.draw(results) is None) == (reason is not None)


def test_all_three_are_written(results: Results, tmp_path: Path) -> None:
    for name in ("heatmap_throughput", "heatmap_speedup", "heatmap_winner"):
        figure = FIGURES[name].draw(results)
        assert figure is not None
        assert all(path.stat().st_size > 1000 for path in style.save(figure, tmp_path / "figures", name))


def test_a_figure_too_high_for_the_renderer_has_fewer_pixels_an_inch(tmp_path: Path) -> None:
    assert style.save(style.new_figure(700.0, 1.0), tmp_path, "high")[0].stat().st_size > 0
