from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import bars, lines, texts
from synthetic_results import FakeRun, write_experiment

from analysis import load, style, summarise, words, write_report
from analysis.figures import FIGURES, accuracy_time, backlog, bytes_step, overview, throughput
from analysis.load import Results
from analysis.summary import by_scheme


@pytest.fixture
def results(folder: Path) -> Results:
    return load(folder)


def test_accuracy_lines_are_the_evaluations(results: Results) -> None:
    figure = accuracy_time.draw(results)
    assert figure is not None
    drawn = lines(figure)
    assert list(drawn["none-train-0"].get_ydata()) == [0.5, 0.8, 0.9]
    assert list(drawn["none-train-0"].get_xdata()) == pytest.approx([6 * 0.25, 13 * 0.25, 20 * 0.25])
    assert drawn["none-train-0 end"].get_ydata()[0] == 0.9
    assert drawn["topk-0.1-train-0 end"].get_markerfacecolor() == "white"
    assert drawn["3lc-train-0 end"].get_marker() == "x"
    assert drawn["target"].get_ydata()[0] == pytest.approx(0.855)
    assert "none-replay-0" not in drawn
    assert "(invalid)" in texts(figure)


def test_the_accuracy_beside_a_scheme_is_the_median_as_in_the_summary(tmp_path: Path) -> None:
    runs = [FakeRun("none", accuracies=(0.5, 0.6, final), repeat=repeat) for repeat, final in enumerate((0.7, 0.8, 0.99))]
    results = load(write_experiment(tmp_path / "x", runs))
    figure = accuracy_time.draw(results)
    assert figure is not None
    assert by_scheme(summarise(results))["final_accuracy"].item() == 0.8
    assert "No compression  80.0 %" in texts(figure)


def test_runs_that_stand_apart_are_in_no_figure_which_says_so(tmp_path: Path) -> None:
    other = {"experiment": "other"}
    runs = [FakeRun("none", step_s=0.4), FakeRun("none", step_s=0.1, repeat=1, manifest=other), FakeRun("3lc", manifest=other)]
    results = load(write_experiment(tmp_path / "quick", runs))
    for name in ("overview", "accuracy_time", "throughput", "breakdown", "bytes_step", "bits_value", "backlog", "backlog_share"):
        figure = FIGURES[name].draw(results)
        assert figure is not None
        assert "Not compared: 2 runs of another experiment, or with other settings." in texts(figure).replace("\n", " ")
        assert not [gid for gid in (*lines(figure), *bars(figure)) if gid.startswith(("none-train-1", "3lc"))]
    breakdown = FIGURES["breakdown"].draw(results)
    assert breakdown is not None
    assert bars(breakdown)["none-train-0 compute"].get_width() == pytest.approx(0.2 * 400)


def test_throughput_bars_have_heights_hatches_and_predictions(results: Results) -> None:
    figure = throughput.draw(results)
    assert figure is not None
    drawn = bars(figure)
    assert {slug: bar.get_width() for slug, bar in drawn.items()} == pytest.approx(
        {"none-train-0": 512, "none-replay-0": 640, "topk-0.1-train-0": 1024, "3lc-train-0": 1280}
    )
    assert drawn["none-train-0"].get_hatch() is None
    assert drawn["none-replay-0"].get_hatch() == style.REPLAY_HATCH
    assert drawn["topk-0.1-train-0"].get_hatch() == style.INVALID_HATCH
    assert drawn["3lc-train-0"].get_hatch() == style.INVALID_HATCH
    assert lines(figure)["none-train-0 predicted"].get_xdata()[0] == pytest.approx(512 / 0.9)
    assert "invalid: fidelity 0.93 is below 0.98" in texts(figure)
    assert "incomplete: killed or still going" in texts(figure)


def test_a_valid_bar_says_its_speedup_and_an_invalid_one_does_not(tmp_path: Path) -> None:
    runs = [FakeRun("none", step_s=0.2), FakeRun("topk-0.1", step_s=0.1), FakeRun("3lc", step_s=0.05, invalid_reasons=("bad",))]
    figure = throughput.draw(load(write_experiment(tmp_path / "x", runs)))
    assert figure is not None
    assert "(2.00x)" in texts(figure)
    assert "(4.00x)" not in texts(figure)


def test_bytes_bars_are_logarithmic_with_the_wire_beside(results: Results) -> None:
    figure = bytes_step.draw(results)
    assert figure is not None
    assert figure.axes[0].get_xscale() == "log"
    assert bars(figure)["topk-0.1-train-0"].get_width() == 60_000
    assert lines(figure)["topk-0.1-train-0 wire"].get_xdata()[0] == pytest.approx(66_000)
    assert "60 kB  (10x)" in texts(figure)


def test_backlog_shows_both_directions_the_limit_and_no_set_up(results: Results) -> None:
    figure = backlog.draw(results)
    assert figure is not None
    drawn = lines(figure)
    there, back = (np.asarray(drawn[f"none-train-0 {way}"].get_ydata(), float) for way in ("s1 → s2", "s2 → s1"))
    assert there.max() == pytest.approx(40.0)
    assert back.min() == pytest.approx(-20.0)
    assert np.asarray(drawn["none-train-0 s1 → s2"].get_xdata(), float).min() == 0
    assert drawn["none-train-0 limit s1 → s2"].get_ydata()[0] == 50.0
    assert np.asarray(drawn["topk-0.1-train-0 s1 → s2"].get_ydata(), float).max() == pytest.approx(20.0)
    assert {axes.get_ylim() for axes in figure.axes} == {figure.axes[0].get_ylim()}


def test_backlog_keeps_a_spike_of_one_sample(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=1000, link_samples=5000)])
    path = folder / "none-train-0" / "links.parquet"
    frame = load(folder).runs[0].links.drop(columns=["run", "scheme"])
    frame.loc[5001, "backlog_bytes"] = 49_000
    frame.to_parquet(path)
    figure = backlog.draw(load(folder))
    assert figure is not None
    peak = max(np.abs(np.asarray(line.get_ydata(), float)).max() for gid, line in lines(figure).items() if "limit" not in gid)
    assert peak == pytest.approx(49.0)


def test_backlog_of_a_link_with_classes_is_the_sum_of_its_queues(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none")])
    frame = load(folder).runs[0].links.drop(columns=["run", "scheme"])
    pd.concat([frame.assign(queue="training"), frame.assign(queue="background")]).to_parquet(folder / "none-train-0" / "links.parquet")
    figure = backlog.draw(load(folder))
    assert figure is not None
    drawn = lines(figure)
    assert np.asarray(drawn["none-train-0 s1 → s2"].get_ydata(), float).max() == pytest.approx(80.0)
    assert drawn["none-train-0 limit s1 → s2"].get_ydata()[0] == 100.0


def test_a_sweep_has_a_panel_a_cell_on_shared_axes(tmp_path: Path) -> None:
    runs = [
        FakeRun(scheme, step_s=step_s / factor, cell={"topology.bottleneck.rate": rate})
        for rate, factor in ((1e7, 1.0), (4e7, 2.0))
        for scheme, step_s in (("none", 0.4), ("topk-0.1", 0.2))
    ]
    results = load(write_experiment(tmp_path / "x", runs))
    for module in (accuracy_time, throughput, bytes_step):
        figure = module.draw(results)
        assert figure is not None
        assert [axes.get_title("left") for axes in figure.axes] == ["rate 10 Mbit/s", "rate 40 Mbit/s"]
        assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    figure = throughput.draw(results)
    assert figure is not None
    widths = [[bar.get_width() for bar in axes.patches] for axes in figure.axes]
    assert widths == [pytest.approx([320, 640]), pytest.approx([640, 1280])]
    assert figure.axes[0].get_xlim()[1] > 1280


def test_what_cannot_be_drawn_has_a_reason(tmp_path: Path) -> None:
    replay = load(write_experiment(tmp_path / "x", [FakeRun("none", workload="replay", manifest={"network": None})]))
    assert accuracy_time.draw(replay) is None
    assert accuracy_time.reason(replay) == "no run has an evaluation (replay does not train)"
    assert backlog.draw(replay) is None
    assert backlog.reason(replay) == "no run's network marks a bottleneck"
    figure = overview.draw(replay)
    assert figure is not None
    assert "no run has an evaluation" in texts(figure)


def test_the_small_print_owns_up(tmp_path: Path) -> None:
    run = FakeRun("none", manifest={"compute_inflation": 1.23, "shared_machine": True, "forced": True})
    run.manifest["prediction"] = {"step_s": 0.2, "ignores": ["background traffic"]}
    results = load(write_experiment(tmp_path / "x", [run], also_planned=("gone",)))
    text = " ".join(words.small_print(results, results.runs))
    assert "4 workers on a dumbbell, bottleneck of 40 Mbit/s, 5 ms one way, 50 kB queue." in text
    assert "Substituted: userspace datapath for the kernel's." in text
    for warning in ("at most 1.23x", "predictions ignore it", "shared", "forced", "1 planned run missing"):
        assert warning in text


def test_the_small_print_says_how_time_and_workers_were_slowed_down(tmp_path: Path) -> None:
    stragglers = [
        {"worker": 1, "slowdown": [1.5, 1.5], "chance": 1.0, "cpus": None},
        {"worker": "all", "slowdown": [1.0, 3.0], "chance": 0.1, "cpus": 0.5},
    ]
    spec = {"workload": {"kind": "train"}, "hosts": {"kind": "process", "cpus": 2.0}, "stragglers": stragglers}
    results = load(write_experiment(tmp_path / "x", [FakeRun("none", manifest={"dilation": 5, "spec": spec}), FakeRun("fp16")]))
    text = " ".join(words.small_print(results, results.runs))
    assert text.count("Time dilated 5x") == 1
    assert "worker 1 1.5x compute; all workers 1x to 3x compute in 10 % of steps and at most 0.5 of a processor." in text
    assert "At most 2 of a processor for each worker." in text
    assert list(summarise(results)["time_dilation"]) == [5.0, 1.0]


def test_an_unknown_scheme_looks_the_same_every_time_and_unlike_its_neighbours() -> None:
    assert style.scheme_style("of-the-future") == style.scheme_style("of-the-future")
    schemes = {f"future{index}": f"Future {index}" for index in range(6)}
    assert len({look.colour for look in style.scheme_styles(schemes).values()}) == 6


def test_the_report_writes_everything_and_says_what_was_wrong(folder: Path) -> None:
    (folder / "topk-0.1-train-0" / "links.parquet").write_bytes(b"broken")
    report = write_report(folder)
    names = {path.relative_to(folder).as_posix() for path in report.paths}
    drawn = [name for name in FIGURES if name not in report.skipped]
    assert {"overview", "accuracy_time", "accuracy_bytes", "throughput", "breakdown", "bits_value", "backlog", "backlog_share"} <= set(
        drawn
    )
    assert names == {"report.html", "summary.csv", "table.csv", "table.parquet"} | {
        f"figures/{name}.{kind}" for name in drawn for kind in ("png", "pdf")
    }
    assert all(path.stat().st_size > 0 for path in report.paths)
    assert len(report.problems) == 1
    assert report.skipped == {name: FIGURES[name].reason(load(folder)) for name in FIGURES if name not in drawn}
    assert report.skipped["heatmap_winner"] == "fewer than two numbers are swept"


def test_the_report_skips_a_figure_with_nothing_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "save", lambda figure, folder, name: [])
    folder = write_experiment(tmp_path / "x", [FakeRun("none", workload="replay")])
    skipped = write_report(folder).skipped
    assert skipped["accuracy_time"] == skipped["accuracy_bytes"] == "no run has an evaluation (replay does not train)"
    assert "throughput" not in skipped
    assert json.loads((folder / "experiment.json").read_text())["name"] == "x"


def test_quantities_read_well() -> None:
    assert words.quantity(4e7, "bit/s") == "40 Mbit/s"
    assert words.quantity(0.005, "s") == "5 ms"
    assert words.quantity(123_456, "B") == "123 kB"
    assert words.quantity(12, "B") == "12 B"
    assert words.cell_words({"topology.bottleneck.delay": 0.02, "workload.model": "resnet8"}) == "delay 20 ms, model resnet8"


def test_of_very_many_cells_the_first_are_drawn_and_the_figure_says_so(tmp_path: Path) -> None:
    cells = [{"topology.bottleneck.rate": rate_bps * 1e6} for rate_bps in range(1, 15)]
    many = load(write_experiment(tmp_path / "x", [FakeRun("none", steps=3, link_samples=2, cell=cell) for cell in cells]))
    for figure in (throughput.draw(many), accuracy_time.draw(many)):
        assert figure is not None
        assert len(figure.axes) == 12
        assert "First 12 of 14 cells." in texts(figure).replace("\n", " ")
