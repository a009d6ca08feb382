"""Figures over time: what is drawn when links change, when others use them, and when nothing does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import lines, texts, xy
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from synthetic_results import FakeRun, rewrite, write_experiment

from analysis import load
from analysis.figures import changes, delay_ratio, marks
from analysis.load import Results

TO_10 = {"link": "bottleneck", "direction": "both", "at_s": 2.0, "rate_bps": 10e6}
TO_40 = {"link": "bottleneck", "direction": "both", "at_s": 4.0, "rate_bps": 40e6, "delay_s": 0.02}
CHANGES = ((2.0, TO_10), (4.0, TO_40))


def changing(folder: Path, *runs: FakeRun) -> Results:
    """Write runs of 5 s over a bottleneck of 40, 10 and 40 Mbit/s that carries 8 Mbit/s all the time."""
    write_experiment(folder, list(runs))
    for run in runs:
        rewrite(
            folder / run.slug,
            "links",
            rate_bps=lambda table: np.where(table["t_s"].between(2.0, 4.0, inclusive="left"), 10e6, 40e6),
            sent_bytes=lambda table: (table["t_s"] + 1) * 1e6,
        )
    return load(folder)


def drawing(results: Results) -> Figure:
    figure = changes.draw(results)
    assert figure is not None
    return figure


def test_three_panels_show_throughput_ratio_and_bandwidth(tmp_path: Path) -> None:
    results = changing(tmp_path / "x", FakeRun("none", changes=CHANGES), FakeRun("topk-0.1", step_s=0.125, steps=40, changes=CHANGES))
    rewrite(results.folder / "topk-0.1-train-0", "steps", ratio=lambda table: np.where(table["t_s"] < 2.5, 0.1, 0.01))
    figure = drawing(load(results.folder))
    drawn = lines(figure)
    times, throughput = xy(drawn["none-train-0 throughput"])
    assert throughput == pytest.approx([512] * 10)
    assert times == pytest.approx(np.arange(0.25, 5, 0.5).tolist())
    assert xy(drawn["topk-0.1-train-0 throughput"])[1] == pytest.approx([1024] * 10)
    times, ratio = xy(drawn["topk-0.1-train-0 ratio"])
    assert [r for t, r in zip(times, ratio, strict=True) if t < 2.5] == [0.1] * 20
    assert set(ratio[20:]) == {0.01}
    assert np.nanmax(np.abs(np.array(xy(drawn["none-train-0 delivered"])[1]) - 8)) < 1e-6
    times, configured = xy(drawn["configured"])
    assert configured == [40, 10, 40, 40]
    assert times == pytest.approx([0, 2, 4, 4.975])
    limits = {axes.get_xlim() for axes in figure.axes}
    assert limits == {(0.0, 5.0)}


def test_changes_are_marked_in_every_panel_and_said_once(tmp_path: Path) -> None:
    figure = drawing(changing(tmp_path / "x", FakeRun("none", changes=CHANGES), FakeRun("3lc", changes=CHANGES)))
    for axes in figure.axes:
        marked = [(str(line.get_gid()), line.get_xdata()[0]) for line in axes.lines if str(line.get_gid()).startswith("change ")]
        assert marked == [("change 10 Mbit/s", 2.0), ("change 40 Mbit/s, delay 20 ms", 4.0)]
    assert texts(figure).count("40 Mbit/s, delay 20 ms") == 1
    assert "Dashed: bottleneck was changed." in texts(figure).replace("\n", " ")


def test_a_change_at_another_time_in_each_run_has_its_schemes_colour(tmp_path: Path) -> None:
    by_step = {"link": "access-h1", "at_step": 10, "rate_bps": "unlimited"}
    runs = [FakeRun("none", changes=(*CHANGES, (2.5, by_step))), FakeRun("3lc", changes=(*CHANGES, (1.0, by_step)))]
    results = changing(tmp_path / "x", *runs)
    found = marks.changes(results.runs)
    assert [(change.t_s, change.text, change.scheme) for change in found] == [
        (1.0, "access-h1: no rate limit", "3lc"),
        (2.0, "10 Mbit/s", None),
        (2.5, "access-h1: no rate limit", "none"),
        (4.0, "40 Mbit/s, delay 20 ms", None),
    ]
    own = [line for line in drawing(results).axes[0].lines if line.get_gid() == "change access-h1: no rate limit"]
    assert len({to_hex(str(line.get_color())) for line in own}) == 2


def test_the_same_change_twice_is_two_changes(tmp_path: Path) -> None:
    twice = ((1.0, TO_10), (3.0, TO_10))
    results = changing(tmp_path / "x", FakeRun("none", changes=twice), FakeRun("3lc", changes=twice))
    assert [change.t_s for change in marks.changes(results.runs)] == [1.0, 3.0]


def test_what_a_change_was_is_said_in_words(tmp_path: Path) -> None:
    data = [
        {"link": "bottleneck", "direction": "both", "loss": 0.01},
        {"link": "bottleneck", "direction": "both", "jitter_s": 0.003, "state": "down"},
        {"link": "bottleneck", "direction": "forward", "rate_bps": 5e6},
        {"link": "bottleneck", "direction": "both"},
    ]
    results = changing(tmp_path / "x", FakeRun("none", changes=tuple((1.0 + i, one) for i, one in enumerate(data))))
    assert [change.text for change in marks.changes(results.runs)] == [
        "loss 1 %",
        "jitter 3 ms, down",
        "bottleneck →: 5 Mbit/s",
        "a change",
    ]


def test_a_trace_of_very_many_changes_is_not_marked_line_by_line(tmp_path: Path) -> None:
    many = tuple((0.01 + 0.05 * i, TO_10 | {"rate_bps": 1e6 * (i + 1)}) for i in range(90))
    figure = drawing(changing(tmp_path / "x", FakeRun("none", changes=many)))
    assert not [gid for gid in lines(figure) if gid.startswith("change ")]
    assert "90 changes of links, not marked." in texts(figure).replace("\n", " ")


def test_background_traffic_is_shaded_and_its_share_drawn(tmp_path: Path) -> None:
    paths = {"paths": [["h5", "s1", "s2", "h6"], ["h6", "s2", "s1", "h5"]]}
    results = changing(tmp_path / "x", FakeRun("none", manifest=paths))
    assert changes.reason(results) == "no link was changed and there was no background traffic while a run trained"
    assert changes.draw(results) is None
    rows = [{"t_s": t, "source": "h5", "target": "h6", "seconds": 1.0, "goodput_bps": 3e6} for t in (1.0, 2.0)]
    rows += [row | {"source": "h6", "target": "h5", "goodput_bps": 9e6} for row in rows]  # the other way, not over what is shown
    pd.DataFrame(rows).to_parquet(results.runs[0].folder / "background.parquet")
    figure = drawing(load(results.folder))
    for axes in figure.axes:
        (shade,) = [patch for patch in axes.patches if patch.get_gid() == "background h5 → h6"]
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (1.0, 3.0)
    got = np.array(xy(lines(figure)["none-train-0 background"])[1])
    assert got[2:6].tolist() == pytest.approx([3.0] * 4)
    assert np.isnan(got[[0, 1, 6, 9]]).all()
    assert "Background: h5 → h6; h6 → h5." in texts(figure).replace("\n", " ")


def test_a_run_that_is_not_valid_is_pale_hollow_and_says_so(tmp_path: Path) -> None:
    good, bad = FakeRun("none", changes=CHANGES), FakeRun("3lc", changes=CHANGES, invalid_reasons=("bad",))
    figure = drawing(changing(tmp_path / "x", good, bad))
    line = lines(figure)["3lc-train-0 throughput"]
    assert line.get_markerfacecolor() == "white" and line.get_alpha() < 1
    assert "3LC (not valid)" in texts(figure)
    assert lines(figure)["none-train-0 throughput"].get_alpha() == 1


def test_of_repeats_the_first_valid_one_is_shown(tmp_path: Path) -> None:
    runs = [FakeRun("none", changes=CHANGES, repeat=number, invalid_reasons=("bad",) * (number == 1)) for number in (1, 2, 3)]
    figure = drawing(changing(tmp_path / "x", *runs))
    assert [gid for gid in lines(figure) if gid.endswith("throughput")] == ["none-train-2 throughput"]
    assert "Of repeats the first valid one." in texts(figure).replace("\n", " ")


def test_a_rate_that_is_no_limit_does_not_flatten_the_panel(tmp_path: Path) -> None:
    results = changing(tmp_path / "x", FakeRun("none", changes=CHANGES))
    rewrite(results.runs[0].folder, "links", rate_bps=1e10)
    assert drawing(load(results.folder)).axes[2].get_ylim()[1] == pytest.approx(1.08 * 8, rel=0.01)


def test_delay_and_ratio_are_those_of_adaptive_schemes_only(tmp_path: Path) -> None:
    fixed = load(write_experiment(tmp_path / "y", [FakeRun("none"), FakeRun("topk-0.1"), FakeRun("dc2", steps=0, status="running")]))
    assert delay_ratio.reason(fixed) == "no adaptive scheme made a step"
    assert delay_ratio.draw(fixed) is None
    folder = write_experiment(tmp_path / "x", [FakeRun("none"), FakeRun("dc2", changes=CHANGES)])
    run = folder / "dc2-train-0"
    rewrite(run, "steps", ratio=lambda t: 1 / (1 + t["step"]), exchange_s=lambda t: 0.1 + 0.01 * t["step"] + 0.001 * t["rank"])
    figure = delay_ratio.draw(load(folder))
    assert figure is not None
    drawn = lines(figure)
    times, delays_ms = xy(drawn["dc2-train-0 each exchange"])
    assert times == pytest.approx((0.25 * np.arange(20)).tolist())
    assert delays_ms == pytest.approx((103 + 10 * np.arange(20)).tolist())  # of rank 3
    assert xy(drawn["dc2-train-0 exchange"])[1][2:-2] == pytest.approx(delays_ms[2:-2])  # the median of five in a row
    assert xy(drawn["dc2-train-0 ratio"])[1] == pytest.approx((1 / (1 + np.arange(20))).tolist())
    assert drawn["compute"].get_ydata()[0] == pytest.approx(50)
    assert drawn["change 10 Mbit/s"].get_xdata()[0] == 2.0
    assert not [gid for gid in drawn if gid.startswith("none")]


def test_an_adaptive_scheme_is_shown_where_it_kept_its_ratio(tmp_path: Path) -> None:
    cells = [{"topology.bottleneck.rate": rate} for rate in (1e6, 9e6)]
    folder = write_experiment(tmp_path / "x", [FakeRun(scheme, cell=cell) for cell in cells for scheme in ("none", "dc2", "mine")])
    rewrite(folder / "mine-train-1000000_0-0", "steps", ratio=lambda table: 1 / (1 + table["step"]))
    figure = delay_ratio.draw(load(folder))
    assert figure is not None
    shown = {gid for gid in lines(figure) if gid.endswith(" ratio")}
    assert shown == {f"{scheme}-train-{rate}-0 ratio" for scheme in ("dc2", "mine") for rate in ("1000000_0", "9000000_0")}
    assert set(xy(lines(figure)["dc2-train-9000000_0-0 ratio"])[1]) == {1.0}
