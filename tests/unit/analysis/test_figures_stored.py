"""Every figure on results of real runs: what it draws is what the stored tables say, worked out here from the files alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import bars, lines, texts, xy
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from stored_results import DATA

from analysis import load, style
from analysis.figures import FIGURES
from analysis.load import Results


@cache
def results(name: str) -> Results:
    return load(DATA / name)


@cache
def table(experiment: str, run: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(DATA / experiment / run / f"{name}.parquet")


def steps(experiment: str, run: str) -> pd.DataFrame:
    return table(experiment, run, "steps")


def draw(name: str, experiment: str) -> Figure:
    figure = FIGURES[name].draw(results(experiment))
    assert figure is not None
    return figure


def throughput(experiment: str, run: str) -> float:
    """Return all samples over worker 0's clock."""
    every = steps(experiment, run)
    return float(every["samples"].sum() / every.loc[every["rank"] == 0, "step_s"].sum())


def middle(values: list[float]) -> float:
    return float(np.median(values))


def test_overview_has_the_bars_and_lines_of_its_four_parts() -> None:
    figure = draw("overview", "changing")
    drawn = {name: bar.get_width() for name, bar in bars(figure).items()}
    assert set(drawn) == {"none_r1", "dc2_r1", "netsense_r1"}
    # of throughput and of bytes; the latter are drawn last
    assert drawn["none_r1"] == pytest.approx(steps("changing", "none_r1")["bytes_sent"].mean())
    assert any(name.startswith("dc2_r1 s") for name in lines(figure))
    assert "no run has an evaluation" in texts(figure).replace("\n", " ")


def test_accuracy_against_time() -> None:
    drawn = lines(draw("accuracy_time", "train"))
    for run in results("train").runs:
        evals = table("train", run.slug, "evals")
        times_s, accuracies = xy(drawn[run.slug])
        assert times_s == pytest.approx(evals["train_s"].tolist())
        assert accuracies == pytest.approx(evals["accuracy"].tolist())


def test_accuracy_against_bytes() -> None:
    drawn = lines(draw("accuracy_bytes", "train"))
    for slug in ("none_r1", "3lc-ps_r1", "netsense_r2"):
        evals = table("train", slug, "evals")
        per_step = steps("train", slug).groupby("step")["bytes_sent"].mean()
        sent = [per_step[per_step.index < done].sum() for done in evals["step"] if done > 0]
        bytes_so_far, accuracies = xy(drawn[slug])
        assert bytes_so_far == pytest.approx(sent)
        assert accuracies == pytest.approx(evals.loc[evals["step"] > 0, "accuracy"].tolist())


def test_regret_against_the_best_fixed_ratio() -> None:
    figure = draw("regret", "train")
    finals = [evals.loc[evals["final"], "accuracy"].item() for evals in (table("train", f"none_r{n}", "evals") for n in (1, 2))]
    target = 0.95 * max(finals)
    taken = {}
    for slug in ("topk-0.1", "topk-0.01", "netsense"):
        both = [table("train", f"{slug}_r{n}", "evals") for n in (1, 2)]
        taken[slug] = middle([float(evals.loc[evals["accuracy"] >= target, "train_s"].min()) for evals in both])
        assert bars(figure)[slug].get_width() == pytest.approx(taken[slug])
    oracle = min(("topk-0.1", "topk-0.01"), key=lambda slug: taken[slug])
    assert xy(lines(figure)[f"oracle {oracle}"])[0] == pytest.approx([taken[oracle]] * 2)
    assert f"{taken['netsense']:.1f} s, regret {100 * (taken['netsense'] / taken[oracle] - 1):+.0f} %" in texts(figure)
    assert "reached by 1 of 2" in texts(figure)  # none, once


def test_changes_of_links_and_what_schemes_made_of_them() -> None:
    figure = draw("changes", "changing")
    drawn = lines(figure)
    ratio = steps("changing", "dc2_r1").query("rank == 0").sort_values("step")
    assert xy(drawn["dc2_r1 ratio"]) == (pytest.approx(ratio["t_s"].tolist()), pytest.approx(ratio["ratio"].tolist()))
    changed = table("changing", "none_r1", "events").query("kind == 'link_changed'")
    assert xy(drawn["change 5 Mbit/s"])[0][0] == pytest.approx(changed["t_s"].iloc[0], abs=0.1)
    assert sorted(set(xy(drawn["configured"])[1])) == [5, 20, 40]
    delivered = np.array(xy(drawn["none_r1 delivered"]))
    slow = delivered[1][(delivered[0] > 6) & (delivered[0] < 9)]
    links = table("changing", "none_r1", "links").query("link == 'bottleneck' and source == 's1' and 6 < t_s < 9")
    mean_mbps = 8e-6 * (links["sent_bytes"].max() - links["sent_bytes"].min()) / (links["t_s"].max() - links["t_s"].min())
    assert slow.mean() == pytest.approx(mean_mbps, rel=0.05)
    assert drawn["netsense_r1 throughput"].get_alpha() == 0.6  # not valid


def test_a_link_that_fails_is_marked_and_nothing_is_delivered_meanwhile() -> None:
    drawn = lines(draw("changes", "cond"))
    down_s, up_s = xy(drawn["change down"])[0][0], xy(drawn["change up"])[0][0]
    assert (down_s, up_s) == pytest.approx((15, 16), abs=0.2)
    times_s, mbps = map(np.array, xy(drawn["none delivered"]))
    meanwhile = (times_s > down_s + 0.25) & (times_s < up_s - 0.25)
    assert meanwhile.any()
    assert mbps[meanwhile].max() < 0.1


def test_background_traffic_is_shaded_and_drawn_as_it_was_received() -> None:
    figure = draw("changes", "rivals")
    shaded = bars(figure)["background 1 flow t1 → t2"]
    rows = table("rivals", "none", "background").query("source == 't1'")
    assert shaded.get_x() == pytest.approx(rows["t_s"].min())
    assert shaded.get_width() == pytest.approx((rows["t_s"] + rows["seconds"]).max() - rows["t_s"].min())
    times_s, mbps = map(np.array, xy(lines(figure)["none background"]))
    alone = (times_s > 1.3) & (times_s < 1.9)  # the datagrams of t1 only, 3 Mbit/s
    assert mbps[alone] == pytest.approx(3, rel=0.1)


def test_delay_and_ratio_traces() -> None:
    drawn = lines(draw("delay_ratio", "changing"))
    every = steps("changing", "dc2_r1")
    longest_ms = 1e3 * every.groupby("step")["exchange_s"].max()
    assert xy(drawn["dc2_r1 each exchange"])[1] == pytest.approx(longest_ms.tolist())
    assert xy(drawn["dc2_r1 ratio"])[1] == pytest.approx(every.query("rank == 0").sort_values("step")["ratio"].tolist())
    assert "none_r1 ratio" not in drawn


def test_throughput_is_the_median_over_repeats_with_the_prediction() -> None:
    figure = draw("throughput", "train")
    for slug in ("none", "topk-0.01", "netsense"):
        expected = middle([throughput("train", f"{slug}_r{n}") for n in (1, 2)])
        assert bars(figure)[f"{slug}_r1"].get_width() == pytest.approx(expected)
    predicted_s = [run.manifest["prediction"]["step_s"] for run in results("train").runs if run.scheme == "none"]
    assert xy(lines(figure)["none_r1 predicted"])[0][0] == pytest.approx(4 * 32 / middle(predicted_s))


def test_what_is_not_valid_is_hatched_with_its_reason() -> None:
    figure = draw("throughput", "changing")
    assert bars(figure)["netsense_r1"].get_hatch() == style.INVALID_HATCH
    assert "invalid: the bottleneck delivered 0.977" in texts(figure).replace("\n", " ")


def test_throughput_against_bandwidth() -> None:
    drawn = lines(draw("throughput_rate", "grid"))
    for slug in (
        f"{scheme}_rate-{rate}_delay-{delay}" for scheme in ("none", "topk-0.1") for rate in ("5mbit", "80mbit") for delay in ("1ms",)
    ):
        assert xy(drawn[slug])[1] == pytest.approx([throughput("grid", slug)])
        assert xy(drawn[slug])[0][0] == pytest.approx(5e6 if "5mbit" in slug else 80e6, rel=0.1)


def test_parts_of_a_step_are_means_over_steps_and_workers() -> None:
    drawn = bars(draw("breakdown", "rivals"))
    every = steps("rivals", "none")
    for part in ("compute", "encode", "decode"):
        assert drawn[f"none {part}"].get_width() == pytest.approx(1e3 * every[f"{part}_s"].mean())
    both = drawn["none idle"].get_width() + drawn["none exchange"].get_width()
    assert both == pytest.approx(1e3 * every["exchange_s"].mean())
    assert drawn["none idle"].get_width() > 0


def test_bytes_a_step() -> None:
    figure = draw("bytes_step", "rivals")
    for slug in ("none", "topk-0.1"):
        assert bars(figure)[slug].get_width() == pytest.approx(steps("rivals", slug)["bytes_sent"].mean())
        assert xy(lines(figure)[f"{slug} wire"])[0] == pytest.approx([steps("rivals", slug)["wire_bytes_sent"].mean()])


def test_bits_a_value_of_a_ring_and_of_pushes_and_pulls() -> None:
    drawn = lines(draw("bits_value", "train"))
    others = steps("train", "3lc-ps_r1").query("rank != 0")
    values = others["dense_bytes"] / 4
    for way, sent in (("push", others["bytes_sent"]), ("pull", others["bytes_received"])):
        assert xy(drawn[f"3lc-ps_r1 {way}"])[1] == pytest.approx((8 * sent / values).groupby(others["step"]).mean().tolist())
    assert xy(drawn["none_r1 both"])[1] == pytest.approx([32] * len(xy(drawn["none_r1 both"])[1]), rel=0.01)


def bottleneck(experiment: str, run: str, source: str = "s1") -> pd.DataFrame:
    """Return one direction's samples while worker 0 trained."""
    clock = steps(experiment, run).query("rank == 0")
    samples = table(experiment, run, "links")
    inside = samples["t_s"].between(0, (clock["t_s"] + clock["step_s"]).max())
    return samples[inside & (samples["link"] == "bottleneck") & (samples["source"] == source)]


def test_backlog_over_time() -> None:
    drawn = lines(draw("backlog", "rivals"))
    samples = bottleneck("rivals", "none")
    assert max(xy(drawn["none s1 → s2"])[1]) == pytest.approx(samples["backlog_bytes"].max() / 1e3)
    assert xy(drawn["none limit s1 → s2"])[1][0] == pytest.approx(samples["queue_bytes"].iloc[0] / 1e3)


def test_backlog_as_the_share_of_time_in_which_more_was_waiting() -> None:
    fills, shares = xy(lines(draw("backlog_share", "rivals"))["none share"])
    samples = bottleneck("rivals", "none")
    held = samples["backlog_bytes"] / samples["queue_bytes"]
    assert shares == pytest.approx([(held > fill).mean() for fill in fills])
    assert shares[0] > 0.5


@pytest.mark.parametrize(
    ("name", "scheme"), [("heatmap_throughput", "none"), ("heatmap_throughput", "topk-0.1"), ("heatmap_speedup", "topk-0.1")]
)
def test_heat_maps_over_bandwidth_and_delay(name: str, scheme: str) -> None:
    meshes: list[Any] = draw(name, "grid").findobj(QuadMesh)
    (mesh,) = [mesh for mesh in meshes if mesh.get_gid() == scheme]
    cells = [f"rate-{rate}_delay-{delay}" for delay in ("1ms", "20ms") for rate in ("5mbit", "80mbit")]
    values = [throughput("grid", f"{scheme}_{cell}") for cell in cells]
    if name == "heatmap_speedup":
        values = [value / throughput("grid", f"none_{cell}") for value, cell in zip(values, cells, strict=True)]
    assert np.asarray(mesh.get_array()).ravel().tolist() == pytest.approx(values)
    written = [f"{value:.2f}x" if name == "heatmap_speedup" else f"{value:.0f}" for value in values]
    assert set(written) <= set(texts(mesh.axes).splitlines())


def test_the_winner_of_each_cell() -> None:
    drawn = bars(draw("heatmap_winner", "grid"))
    assert set(drawn) == {f"topk-0.1 {rate} {delay}" for rate in ("5e+06", "8e+07") for delay in ("0.001", "0.02")}


def test_every_figure_is_looked_at_here() -> None:
    text = (DATA.parent / "unit" / "analysis" / "test_figures_stored.py").read_text()
    assert [name for name in FIGURES if f'draw("{name}"' not in text and f'("{name}", ' not in text] == []
