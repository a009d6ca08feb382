"""Every figure on results of real runs: what it draws is what the stored tables say, worked out here from the files alone.

CHECKS says what each figure is looked at on, and by what; a figure that is not in it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawn import bars, lines, panel, texts, xy
from matplotlib.axes import Axes
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


def widths(drawn: Figure | Axes) -> dict[str, float]:
    return {name: bar.get_width() for name, bar in bars(drawn).items()}


def middle_of_repeats(value: Callable[[str, str], float]) -> dict[str, float]:
    """Return the median of something over the repeats of each scheme of `train`, by the name of its bar: the first repeat."""
    schemes = {"none": 2, "topk-0.1": 2, "topk-0.01": 2, "3lc-ps": 1, "netsense": 2}
    return {f"{slug}_r1": middle([value("train", f"{slug}_r{n + 1}") for n in range(count)]) for slug, count in schemes.items()}


def bytes_a_step(experiment: str, run: str) -> float:
    return float(steps(experiment, run)["bytes_sent"].mean())


def check_overview(figure: Figure) -> None:
    """It has the four figures of `train`, each in a panel of its own; of the queue a row a scheme."""
    assert widths(panel(figure, "samples/s, all workers")) == pytest.approx(middle_of_repeats(throughput))
    assert widths(panel(figure, "payload per worker and step")) == pytest.approx(middle_of_repeats(bytes_a_step))
    check_accuracy_time(panel(figure, "test accuracy"))
    for slug in middle_of_repeats(throughput):
        (queue,) = [axes for axes in figure.axes if any(gid.startswith(f"{slug} limit") for gid in lines(axes))]
        (way,) = [gid.removeprefix(f"{slug} ") for gid in lines(queue) if gid.startswith(f"{slug} s")]
        held = bottleneck("train", slug, source=way.partition(" ")[0])["backlog_bytes"]
        assert max(xy(lines(queue)[f"{slug} {way}"])[1]) == pytest.approx(held.max() / 1e3)


def check_accuracy_time(drawn: Figure | Axes) -> None:
    for run in results("train").runs:
        evals = table("train", run.slug, "evals")
        times_s, accuracies = xy(lines(drawn)[run.slug])
        assert times_s == pytest.approx(evals["train_s"].tolist())
        assert accuracies == pytest.approx(evals["accuracy"].tolist())


def check_accuracy_bytes(figure: Figure) -> None:
    drawn = lines(figure)
    for slug in ("none_r1", "3lc-ps_r1", "netsense_r2"):
        evals = table("train", slug, "evals")
        per_step = steps("train", slug).groupby("step")["bytes_sent"].mean()
        sent = [per_step[per_step.index < done].sum() for done in evals["step"] if done > 0]
        bytes_so_far, accuracies = xy(drawn[slug])
        assert bytes_so_far == pytest.approx(sent)
        assert accuracies == pytest.approx(evals.loc[evals["step"] > 0, "accuracy"].tolist())


def check_regret(figure: Figure) -> None:
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


def check_changes(figure: Figure) -> None:
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


def check_delay_ratio(figure: Figure) -> None:
    drawn = lines(figure)
    every = steps("changing", "dc2_r1")
    longest_ms = 1e3 * every.groupby("step")["exchange_s"].max()
    assert xy(drawn["dc2_r1 each exchange"])[1] == pytest.approx(longest_ms.tolist())
    assert xy(drawn["dc2_r1 ratio"])[1] == pytest.approx(every.query("rank == 0").sort_values("step")["ratio"].tolist())
    assert "none_r1 ratio" not in drawn


def check_throughput(figure: Figure) -> None:
    assert widths(figure) == pytest.approx(middle_of_repeats(throughput))
    predicted_s = [run.manifest["prediction"]["step_s"] for run in results("train").runs if run.scheme == "none"]
    assert xy(lines(figure)["none_r1 predicted"])[0][0] == pytest.approx(4 * 32 / middle(predicted_s))


def test_what_is_not_valid_is_hatched_with_its_reason() -> None:
    figure = draw("throughput", "changing")
    assert bars(figure)["netsense_r1"].get_hatch() == style.INVALID_HATCH
    assert "invalid: the bottleneck delivered 0.977" in texts(figure).replace("\n", " ")


def check_throughput_rate(figure: Figure) -> None:
    drawn = lines(figure)
    for slug in (
        f"{scheme}_rate-{rate}_delay-{delay}" for scheme in ("none", "topk-0.1") for rate in ("5mbit", "80mbit") for delay in ("1ms",)
    ):
        assert xy(drawn[slug])[1] == pytest.approx([throughput("grid", slug)])
        assert xy(drawn[slug])[0][0] == pytest.approx(5e6 if "5mbit" in slug else 80e6, rel=0.1)


def check_breakdown(figure: Figure) -> None:
    drawn = bars(figure)
    every = steps("rivals", "none")
    for part in ("compute", "encode", "decode"):
        assert drawn[f"none {part}"].get_width() == pytest.approx(1e3 * every[f"{part}_s"].mean())
    both = drawn["none idle"].get_width() + drawn["none exchange"].get_width()
    assert both == pytest.approx(1e3 * every["exchange_s"].mean())
    assert drawn["none idle"].get_width() > 0


def check_bytes_step(figure: Figure) -> None:
    for slug in ("none", "topk-0.1"):
        assert bars(figure)[slug].get_width() == pytest.approx(bytes_a_step("rivals", slug))
        assert xy(lines(figure)[f"{slug} wire"])[0] == pytest.approx([steps("rivals", slug)["wire_bytes_sent"].mean()])


def check_bits_value(figure: Figure) -> None:
    drawn = lines(figure)
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


def check_backlog(figure: Figure) -> None:
    drawn = lines(figure)
    samples = bottleneck("rivals", "none")
    assert max(xy(drawn["none s1 → s2"])[1]) == pytest.approx(samples["backlog_bytes"].max() / 1e3)
    assert xy(drawn["none limit s1 → s2"])[1][0] == pytest.approx(samples["queue_bytes"].iloc[0] / 1e3)


def check_backlog_share(figure: Figure) -> None:
    fills, shares = xy(lines(figure)["none share"])
    samples = bottleneck("rivals", "none")
    held = samples["backlog_bytes"] / samples["queue_bytes"]
    assert shares == pytest.approx([(held > fill).mean() for fill in fills])
    assert shares[0] > 0.5


def check_heatmap(figure: Figure, scheme: str, value: Callable[[str], float], form: str) -> None:
    """A map has the value of each cell, over bandwidth and delay, as its colour and in words."""
    meshes: list[Any] = figure.findobj(QuadMesh)
    (mesh,) = [mesh for mesh in meshes if mesh.get_gid() == scheme]
    values = [value(f"rate-{rate}_delay-{delay}") for delay in ("1ms", "20ms") for rate in ("5mbit", "80mbit")]
    assert np.asarray(mesh.get_array()).ravel().tolist() == pytest.approx(values)
    assert {form.format(value) for value in values} <= set(texts(mesh.axes).splitlines())


def check_heatmap_throughput(figure: Figure) -> None:
    check_heatmap(figure, "none", lambda cell: throughput("grid", f"none_{cell}"), "{:.0f}")
    check_heatmap(figure, "topk-0.1", lambda cell: throughput("grid", f"topk-0.1_{cell}"), "{:.0f}")


def check_heatmap_speedup(figure: Figure) -> None:
    check_heatmap(figure, "topk-0.1", lambda cell: throughput("grid", f"topk-0.1_{cell}") / throughput("grid", f"none_{cell}"), "{:.2f}x")


def check_heatmap_winner(figure: Figure) -> None:
    assert set(bars(figure)) == {f"topk-0.1 {rate} {delay}" for rate in ("5e+06", "8e+07") for delay in ("0.001", "0.02")}


CHECKS: dict[str, tuple[str, Callable[[Figure], None]]] = {
    "overview": ("train", check_overview),
    "accuracy_time": ("train", check_accuracy_time),
    "accuracy_bytes": ("train", check_accuracy_bytes),
    "regret": ("train", check_regret),
    "changes": ("changing", check_changes),
    "delay_ratio": ("changing", check_delay_ratio),
    "throughput": ("train", check_throughput),
    "throughput_rate": ("grid", check_throughput_rate),
    "breakdown": ("rivals", check_breakdown),
    "bytes_step": ("rivals", check_bytes_step),
    "bits_value": ("train", check_bits_value),
    "backlog": ("rivals", check_backlog),
    "backlog_share": ("rivals", check_backlog_share),
    "heatmap_throughput": ("grid", check_heatmap_throughput),
    "heatmap_speedup": ("grid", check_heatmap_speedup),
    "heatmap_winner": ("grid", check_heatmap_winner),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_what_the_tables_say(name: str) -> None:
    experiment, check = CHECKS[name]
    check(draw(name, experiment))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(Figure())  # a check that an empty figure passes looks at nothing


def test_the_overview_says_what_a_panel_has_not() -> None:
    assert "no run has an evaluation" in texts(draw("overview", "changing")).replace("\n", " ")
