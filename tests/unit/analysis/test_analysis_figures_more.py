"""The papers' other figures: parts of a step, bits a value, throughput over bandwidth, how full queues are, accuracy over bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from drawn import bars, lines, texts, xy
from matplotlib.colors import to_rgb
from synthetic_results import FakeRun, rewrite, write_experiment

from analysis import load, style
from analysis.figures import accuracy_bytes, backlog_share, bits_value, breakdown, throughput_rate

RATE, DELAY = "topology.bottleneck.rate_bps", "topology.bottleneck.delay_s"


def test_the_parts_of_a_step_stand_end_to_end_and_add_up(tmp_path: Path) -> None:
    runs = [FakeRun("none", step_s=0.25), FakeRun("topk-0.1", step_s=0.1, invalid_reasons=("bad",))]
    folder = write_experiment(tmp_path / "x", runs)
    rewrite(folder / "none-train-0", "steps", t_s=lambda table: table["t_s"] + np.where(table["rank"] == 3, 0.02, 0.0))
    figure = breakdown.draw(load(folder))
    assert figure is not None
    drawn = bars(figure)
    widths = {part: drawn[f"none-train-0 {part}"].get_width() for part in ("compute", "encode", "idle", "exchange", "decode")}
    assert widths == pytest.approx({"compute": 50, "encode": 25, "idle": 15, "exchange": 147.5, "decode": 12.5})
    ends = 0.0
    for part in widths:
        bar = drawn[f"none-train-0 {part}"]
        assert bar.get_x() == pytest.approx(ends)
        ends = bar.get_x() + bar.get_width()
    assert ends == pytest.approx(250)
    assert "250 ms" in texts(figure)
    assert drawn["topk-0.1-train-0 compute"].get_hatch() == style.INVALID_HATCH
    assert "invalid: bad" in texts(figure)


def test_parts_are_means_over_the_valid_repeats(tmp_path: Path) -> None:
    times = ((0.1, ()), (0.3, ()), (5.0, ("bad",)))
    runs = [FakeRun("none", step_s=step_s, repeat=place, invalid_reasons=why) for place, (step_s, why) in enumerate(times)]
    figure = breakdown.draw(load(write_experiment(tmp_path / "x", runs)))
    assert figure is not None
    assert bars(figure)["none-train-0 compute"].get_width() == pytest.approx(0.2 * 200)


def test_a_run_that_did_not_record_every_part_is_left_out_and_counted(tmp_path: Path) -> None:
    runs = [FakeRun("none"), FakeRun("3lc"), FakeRun("topk-0.1", repeat=1), FakeRun("topk-0.1", repeat=2, step_s=0.1)]
    folder = write_experiment(tmp_path / "x", runs)
    for old in ("3lc-train-0", "topk-0.1-train-1"):
        rewrite(folder / old, "steps", encode_s=np.nan)
    figure = breakdown.draw(load(folder))
    assert figure is not None
    assert {gid.rpartition(" ")[0] for gid in bars(figure)} == {"none-train-0", "topk-0.1-train-1"}
    assert bars(figure)["topk-0.1-train-1 compute"].get_width() == pytest.approx(0.2 * 100)  # of the other repeat
    said = texts(figure).replace("\n", " ")
    assert "Not shown: 2 runs that did not record every part of a step." in said
    assert "nan" not in said
    rewrite(folder / "none-train-0", "steps", encode_s=np.nan)
    rewrite(folder / "topk-0.1-train-2", "steps", encode_s=np.nan)
    assert breakdown.reason(load(folder)) == "no run recorded every part of its steps"
    assert breakdown.draw(load(folder)) is None


def test_bits_are_drawn_step_by_step_with_push_and_pull_apart(tmp_path: Path) -> None:
    server = FakeRun("3lc-ps", manifest={"workers": [{"rank": rank, "pattern": "server"} for rank in range(4)]})
    folder = write_experiment(tmp_path / "x", [FakeRun("none"), server])
    rewrite(
        folder / server.slug,
        "steps",
        bytes_sent=lambda table: np.where(table["rank"] == 0, 1e9, 12_500 + 0 * table["step"]),
        bytes_received=lambda table: np.where(table["rank"] == 0, 1e9, 25_000 + 1250 * table["step"]),
    )
    figure = bits_value.draw(load(folder))
    assert figure is not None
    drawn = lines(figure)
    assert xy(drawn["none-train-0 both"]) == ([float(step) for step in range(20)], pytest.approx([32.0] * 20))
    assert xy(drawn["3lc-ps-train-0 push"])[1] == pytest.approx([1.0] * 20)  # 100,000 values
    assert xy(drawn["3lc-ps-train-0 pull"])[1] == pytest.approx([2 + 0.1 * step for step in range(20)])
    assert figure.axes[0].get_yscale() == "log"
    assert "3LC-PS push: 1" in texts(figure) and "3LC-PS pull: 3" in texts(figure)


def test_many_steps_are_drawn_as_medians_of_stretches(tmp_path: Path) -> None:
    figure = bits_value.draw(load(write_experiment(tmp_path / "x", [FakeRun("none", steps=1000, step_s=0.01)])))
    assert figure is not None
    steps, bits = xy(lines(figure)["none-train-0 both"])
    assert len(steps) == bits_value.BINS
    assert (steps[0], steps[-1]) == (4.5, 994.5)
    assert set(bits) == {32.0}


def test_without_bytes_there_are_no_bits(tmp_path: Path) -> None:
    results = load(write_experiment(tmp_path / "x", [FakeRun("none", bytes_sent=0)]))
    assert bits_value.draw(results) is None
    assert bits_value.reason(results) == "no run recorded the bytes it sent and the size of its gradient"


def swept(folder: Path) -> Path:
    runs = [
        FakeRun(scheme, step_s=step_s, repeat=repeat, workload="replay", cell={RATE: rate, DELAY: 0.001})
        for scheme, times in (("none", (0.8, 0.2)), ("3lc", (0.4, 0.1)))
        for rate, step_s in zip((5e6, 20e6), times, strict=True)
        for repeat in range(2)
    ]
    runs.append(FakeRun("none", step_s=0.4, workload="replay", cell={RATE: 5e6, DELAY: 0.02}, invalid_reasons=("bad",)))
    return write_experiment(folder, runs)


def test_throughput_over_the_swept_rate_has_a_panel_for_the_rest(tmp_path: Path) -> None:
    figure = throughput_rate.draw(load(swept(tmp_path / "x")))
    assert figure is not None
    near, far = figure.axes
    assert (near.get_title("left"), far.get_title("left")) == ("delay 1 ms", "delay 20 ms")
    drawn = {str(line.get_gid()): line for line in near.lines}
    rates, throughput = xy(drawn["3lc line"])
    assert throughput == pytest.approx([320, 1280])
    assert rates == pytest.approx([5e6, 20e6], rel=0.02)
    assert xy(drawn["none line"])[1] == pytest.approx([160, 640])
    assert xy(drawn[next(gid for gid in drawn if gid.endswith("interval"))])[1] == pytest.approx([160, 160])
    invalid = next(line for line in far.lines if str(line.get_gid()).startswith("none-replay") and line.get_linestyle() == "None")
    assert invalid.get_markerfacecolor() == "white"
    assert "not valid" in texts(figure)
    assert [tick.get_text() for tick in near.get_xticklabels()] == ["5", "20"]
    assert near.get_xlabel() == "rate (Mbit/s)"


def test_without_a_swept_rate_there_is_no_such_figure(tmp_path: Path) -> None:
    results = load(write_experiment(tmp_path / "x", [FakeRun("none", cell={DELAY: delay}) for delay in (0.001, 0.02)]))
    assert throughput_rate.draw(results) is None
    assert throughput_rate.reason(results) == "no rate is swept"


def test_the_queue_is_above_each_level_for_a_share_of_the_time(tmp_path: Path) -> None:
    figure = backlog_share.draw(load(write_experiment(tmp_path / "x", [FakeRun("none", peak_bytes=45_000)])))
    assert figure is not None
    levels, shares = xy(lines(figure)["none share"])  # a saw of ten equal steps of 5 kB, of 50
    assert levels[-1] == pytest.approx(0.9)
    for level, share in ((0.0, 0.9), (0.25, 0.7), (0.75, 0.2), (0.9, 0.0)):
        assert np.interp(level, levels, shares) == pytest.approx(share, abs=0.005)
    assert "No compression: 9 ms" in texts(figure)


def test_a_queue_without_a_limit_cannot_be_full(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [FakeRun("none")])
    rewrite(folder / "none-train-0", "links", queue_bytes=math.nan)
    assert backlog_share.draw(load(folder)) is None
    assert backlog_share.reason(load(folder)) == "no bottleneck's queue has a limit"


def test_accuracy_is_drawn_over_what_was_sent_by_then(tmp_path: Path) -> None:
    runs = [
        FakeRun("none", bytes_sent=600_000, accuracies=(0.5, 0.8, 0.9)),
        FakeRun("topk-0.1", bytes_sent=60_000, accuracies=(0.4, 0.7, 0.85)),
        FakeRun("3lc", bytes_sent=90_000, accuracies=(0.4, 0.7, 0.8)),  # more bytes and less accuracy than top-k
        FakeRun("dc2", bytes_sent=6_000, accuracies=(0.4, 0.7, 0.99), invalid_reasons=("bad",)),
    ]
    figure = accuracy_bytes.draw(load(write_experiment(tmp_path / "x", runs)))
    assert figure is not None
    drawn = lines(figure)
    assert xy(drawn["none-train-0"]) == (pytest.approx([3.6e6, 7.8e6, 12e6]), [0.5, 0.8, 0.9])
    assert drawn["dc2-train-0 end"].get_markerfacecolor() == "white"
    sent, accuracy = xy(drawn["frontier"])
    assert sent[:3] == pytest.approx([1.2e6, 12e6, 12e6])
    assert accuracy == [0.85, 0.85, 0.9, 0.9]


def test_the_frontier_holds_what_nobody_beats_at_both() -> None:
    points = [(10.0, 0.5), (10.0, 0.6), (20.0, 0.6), (30.0, 0.7), (40.0, 0.65)]
    assert accuracy_bytes.frontier(points) == [(10.0, 0.6), (30.0, 0.7)]
    assert accuracy_bytes.frontier([]) == []


def test_accuracy_over_bytes_needs_both(tmp_path: Path) -> None:
    replay = load(write_experiment(tmp_path / "x", [FakeRun("none", workload="replay")]))
    assert accuracy_bytes.reason(replay) == "no run has an evaluation (replay does not train)"
    silent = load(write_experiment(tmp_path / "y", [FakeRun("none", bytes_sent=0)]))
    assert accuracy_bytes.draw(silent) is None
    assert accuracy_bytes.reason(silent) == "no run that was evaluated sent bytes"


def test_parts_can_be_told_apart_in_grey() -> None:
    shares = np.array([0.299, 0.587, 0.114])
    greys = sorted(float(shares @ np.array(to_rgb(colour))) for colour in breakdown.COLOURS.values())
    assert min(np.diff(greys)) > 0.04
