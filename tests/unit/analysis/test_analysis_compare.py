"""Every worker's batch is 32 and there are 4 of them, so a run's throughput is 128 / step_s; 30 steps are evaluated at 10, 20 and 30."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import load, metrics
from analysis.compare import Comparison, compare, main, markdown

STEPS = 30
BAD = ("fidelity 0.93 is below 0.98",)


def fake(scheme: str, repeat: int, step_s: float, accuracies: tuple[float, ...] = (0.5, 0.8, 0.9), **more: Any) -> FakeRun:
    return FakeRun(scheme, step_s=step_s, repeat=repeat, accuracies=accuracies, **{"steps": STEPS, "link_samples": 2, **more})


def spec(kind: str = "train", **workload: Any) -> dict[str, Any]:
    return {"spec": {"workload": {"kind": kind, "batch_size": 32, **workload}, "topology": {"kind": "dumbbell", "workers": 4}}}


def move_ratio(folder: Path, scheme: str) -> None:
    """Let the ratio of a scheme's runs follow the step, as an adaptive scheme's does."""
    for path in folder.glob(f"{scheme}-*/steps.parquet"):
        steps = pd.read_parquet(path)
        steps.assign(ratio=1 / (1 + steps["step"])).to_parquet(path)


Found = Callable[..., Comparison]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Write one experiment and compare its schemes."""

    def write_and_compare(runs: list[FakeRun], accuracy: float | None = None, adaptive: str = "netsense") -> Comparison:
        folder = write_experiment(tmp_path / "x", runs)
        move_ratio(folder, adaptive)
        return compare([load(folder)], accuracy)

    return write_and_compare


def row(table: pd.DataFrame, scheme: str, workload: str = "train") -> dict[Any, Any]:
    (one,) = table[(table["scheme"] == scheme) & (table["workload"] == workload)].to_dict("records")
    return one


# throughput


def test_ratios_are_paired_by_repeat_and_their_interval_is_students(found: Found) -> None:
    # none 0.4, 0.3, 0.2 s; topk 0.1, 0.1, 0.05 s: ratios 4, 3, 4. Means of throughputs would give (1280+1280+2560)/(320+426.7+640) = 3.69
    runs = [fake("none", n, step_s) for n, step_s in ((1, 0.4), (2, 0.3), (3, 0.2))]
    runs += [fake("topk-0.1", n, step_s) for n, step_s in ((1, 0.1), (2, 0.1), (3, 0.05))]
    one = row(found(runs).speedups, "topk-0.1")
    half = 4.303 * math.sqrt(1 / 3) / math.sqrt(3)  # the deviations are 1/3, -2/3, 1/3: variance (1+4+1)/9 / 2 = 1/3
    assert one["pairs"] == 3
    assert one["ratio"] == pytest.approx(11 / 3)
    assert (one["low"], one["high"]) == pytest.approx((11 / 3 - half, 11 / 3 + half))
    assert one["above"] is True
    assert one["throughput_samples_s"] == pytest.approx((1280 + 1280 + 2560) / 3)
    assert one["none_samples_s"] == pytest.approx((320 + 128 / 0.3 + 640) / 3)


def test_a_mean_above_two_does_not_put_the_interval_above_two(found: Found) -> None:
    runs = [fake("none", 1, 0.2), fake("none", 2, 0.2), fake("fp16", 1, 0.1), fake("fp16", 2, 0.05)]  # 2 and 4, t = 12.706
    one = row(found(runs).speedups, "fp16")
    assert one["ratio"] == pytest.approx(3)
    assert one["high"] == pytest.approx(3 + 12.706 * math.sqrt(2) / math.sqrt(2))
    assert one["above"] is False


def test_schemes_with_and_without_an_interval_stand_in_one_table(found: Found) -> None:
    runs = [fake("none", 1, 0.4), fake("none", 2, 0.4), fake("fp16", 1, 0.1), fake("fp16", 2, 0.1), fake("3lc", 1, 0.1)]
    text = markdown(found(runs))
    assert "| train | fp16 | 2 | 1280.0 | 320.0 | 4.00 | 4.00 to 4.00 | yes |" in text
    assert "| train | 3lc | 1 | 1280.0 | 320.0 | 4.00 | - | no interval |" in text


def test_train_and_replay_have_baselines_of_their_own(found: Found) -> None:
    runs = [fake("none", 1, 0.4), fake("fp16", 1, 0.2), fake("none", 1, 0.3, workload="replay"), fake("fp16", 1, 0.1, workload="replay")]
    table = found(runs).speedups
    assert row(table, "fp16")["ratio"] == pytest.approx(2)
    assert row(table, "fp16", "replay")["ratio"] == pytest.approx(3)


def test_one_repeat_has_no_interval(found: Found) -> None:
    comparison = found([fake("none", 1, 0.4), fake("fp16", 1, 0.1)])
    one = row(comparison.speedups, "fp16")
    assert one["ratio"] == pytest.approx(4)
    assert math.isnan(one["low"]) and math.isnan(one["high"]) and one["above"] is None
    assert "| train | fp16 | 1 | 1280.0 | 320.0 | 4.00 | - | no interval |" in markdown(comparison)


def test_an_invalid_run_is_left_out_and_counted_and_takes_its_pair_with_it(found: Found) -> None:
    runs = [fake("none", 1, 0.4, invalid_reasons=BAD), fake("none", 2, 0.4), fake("none", 3, 0.4)]
    runs += [fake("fp16", 1, 0.001), fake("fp16", 2, 0.1), fake("fp16", 3, 0.001, status="failed")]
    comparison = found(runs)
    one = row(comparison.speedups, "fp16")
    assert (one["pairs"], one["runs"], one["invalid"], one["unpaired"]) == (1, 3, 1, 1)
    assert one["ratio"] == pytest.approx(4)
    text = markdown(comparison)
    assert "1 of 3 invalid, 1 without a valid `none`" in text
    assert "none-train-1: fidelity 0.93 is below 0.98." in text
    assert "fp16-train-3: failed" in text


def test_without_none_no_ratio_is_stated(found: Found) -> None:
    comparison = found([fake("topk-0.1", 1, 0.1), fake("topk-0.1", 2, 0.1)])
    one = row(comparison.speedups, "topk-0.1")
    assert one["pairs"] == 0 and math.isnan(one["ratio"]) and one["above"] is None
    taken = row(comparison.times, "topk-0.1")
    assert math.isnan(taken["target"]) and pd.isna(taken["reached"]) and math.isnan(taken["median_s"])
    final = row(comparison.accuracies, "topk-0.1")
    assert final["mean"] == pytest.approx(0.9) and final["pairs"] == 0 and math.isnan(final["difference_points"])
    assert "No target: no valid run of `none`." in markdown(comparison)


# time to accuracy


def test_the_target_is_a_share_of_the_best_final_accuracy_of_none(found: Found) -> None:
    runs = [fake("none", 1, 0.1, (0.5, 0.8, 0.9)), fake("none", 2, 0.1, (0.5, 0.8, 0.8))]
    one = row(found(runs).times, "none")
    assert one["target"] == pytest.approx(0.95 * 0.9)
    assert one["target_from"] == "0.95 of the best final accuracy of `none`"


def test_the_median_is_over_seeds_and_pairs_are_compared_one_by_one(found: Found) -> None:
    late, early = (0.1, 0.2, 0.8), (0.8, 0.8, 0.8)
    runs = [fake("none", 1, 1.0, late), fake("none", 2, 1.0, late), fake("none", 3, 1.0, early)]  # 30, 30, 10 s
    runs += [fake("fp16", 1, 0.5, late), fake("fp16", 2, 0.5, early), fake("fp16", 3, 0.8, late)]  # 15, 5, 24 s
    runs += [fake("3lc", n, 0.5, early) for n in (1, 2, 3)]  # 5 s each
    table = found(runs, 0.75).times
    one = row(table, "fp16")
    assert one["median_s"] == pytest.approx(15)
    assert (one["reached"], one["seeds"], one["shorter"], one["pairs"]) == (3, 3, 2, 3)
    assert (row(table, "3lc")["shorter"], row(table, "3lc")["pairs"]) == (3, 3)
    assert row(table, "none")["median_s"] == pytest.approx(30)


def test_a_seed_that_did_not_get_there_counts_as_later_than_any_that_did(found: Found) -> None:
    runs = [fake("none", n, 1.0) for n in (1, 2, 3)]  # 20 s to 0.75
    runs += [fake("fp16", 1, 0.1), fake("fp16", 2, 0.2), fake("fp16", 3, 0.2, (0.1, 0.2, 0.3))]  # 2 s, 4 s, never
    runs += [fake("3lc", n, 0.1, (0.1, 0.2, 0.3)) for n in (1, 2, 3)]
    comparison = found(runs, 0.75)
    one, never = row(comparison.times, "fp16"), row(comparison.times, "3lc")
    assert (one["reached"], one["shorter"]) == (2, 2)
    assert one["median_s"] == pytest.approx(4)
    assert (never["reached"], never["shorter"], never["pairs"]) == (0, 0, 3)
    assert math.isnan(never["median_s"])
    text = markdown(comparison)
    assert "| fp16 | 2 of 3 | 4.0 | no (2 of 3) |" in text
    assert "| 3lc | 0 of 3 | - | no (0 of 3) |" in text


@pytest.mark.parametrize(
    ("workload", "given", "target", "source"),
    [
        ({"budget": {"accuracy": 0.6}, "target_accuracy": 0.8}, 0.7, 0.6, "asked by the budget; the given 0.7 was not used"),
        ({"budget": {"accuracy": None}, "target_accuracy": 0.8}, 0.7, 0.7, "given"),
        ({"budget": {"accuracy": None}, "target_accuracy": 0.8}, None, 0.8, "asked by the workload"),
    ],
)
def test_the_budgets_accuracy_comes_before_the_given_one(
    found: Found, workload: dict[str, Any], given: float | None, target: float, source: str
) -> None:
    one = row(found([fake("none", 1, 0.1, manifest=spec(**workload))], given).times, "none")
    assert (one["target"], one["target_from"]) == (target, source)


def test_of_several_budgets_the_lowest_accuracy_is_the_target(found: Found) -> None:
    runs = [fake(scheme, 1, 0.1, manifest=spec(budget={"accuracy": accuracy})) for scheme, accuracy in (("none", 0.8), ("fp16", 0.7))]
    one = row(found(runs).times, "fp16")
    assert (one["target"], one["target_from"]) == (0.7, "asked by the budget, the lowest of 2")


# regret


def test_regret_is_to_the_ratio_of_the_least_median_time(found: Found) -> None:
    runs = [fake("none", n, 1.0) for n in (1, 2, 3)]
    runs += [fake("topk-0.1", n, 0.5) for n in (1, 2, 3)]  # 10 s
    runs += [fake("topk-0.05", n, step_s) for n, step_s in ((1, 0.3), (2, 0.4), (3, 0.9))]  # 6, 8, 18 s: the oracle, 8 s
    runs += [fake("topk-0.01", n, 0.1, (0.1, 0.2, 0.9 if n < 2 else 0.3)) for n in (1, 2, 3)]  # 3 s, never, never
    runs += [fake("topk-0.001", 1, 0.1)]  # 2 s, and no more than once
    runs += [fake("netsense", n, step_s) for n, step_s in ((1, 0.4), (2, 0.5), (3, 0.6))]  # 8, 10, 12 s
    runs += [fake("3lc", n, 0.2) for n in (1, 2, 3)]  # of one ratio: no regret is asked of it
    comparison = found(runs, 0.75)
    (one,) = comparison.regrets.to_dict("records")
    assert (one["scheme"], one["oracle"], one["oracle_seeds"]) == ("netsense", "topk-0.05", 3)
    assert (one["oracle_s"], one["regret"]) == pytest.approx((8, 0.25))
    assert (one["candidates"], one["excluded"]) == ("topk-0.1, topk-0.05", "topk-0.01, topk-0.001")
    assert "| netsense | 3 of 3 | 10.0 | topk-0.05 (3 seeds) | 8.0 | +25 % | topk-0.1, topk-0.05 | topk-0.01, topk-0.001 |" in markdown(
        comparison
    )


def test_a_seed_that_never_got_there_counts_alike_for_both_sides_of_a_regret(found: Found) -> None:
    never = (0.1, 0.2, 0.3)
    runs = [fake("none", n, 1.0) for n in (1, 2, 3)] + [fake("topk-0.1", n, 1.5) for n in (1, 2, 3)]  # 30 s each
    runs += [fake("topk-0.01", 1, 0.5), fake("topk-0.01", 2, 0.55), fake("topk-0.01", 3, 0.5, never)]  # 10, 11 s, never: 11 s
    runs += [fake("netsense", 1, 0.75), fake("netsense", 2, 0.8), fake("netsense", 3, 0.5, never)]  # 15, 16 s, never: 16 s
    (one,) = found(runs, 0.75).regrets.to_dict("records")
    assert (one["oracle"], one["regret"]) == ("topk-0.01", pytest.approx(16 / 11 - 1))


def test_there_is_no_regret_without_an_oracle_or_without_a_time(found: Found) -> None:
    never = (0.1, 0.2, 0.3)
    runs = [fake("none", 1, 1.0), fake("topk-0.1", 1, 0.5, never), fake("netsense", 1, 0.4)]
    slow = {"cell": {"topology.bottleneck.rate": "1mbit"}}
    runs += [fake("none", 1, 1.0, **slow), fake("topk-0.1", 1, 0.5, **slow), fake("netsense", 1, 0.4, never, **slow)]
    comparison = found(runs, 0.75)
    one, two = comparison.regrets.to_dict("records")
    assert one["oracle"] == "" and math.isnan(one["regret"]) and one["excluded"] == "topk-0.1"
    assert two["oracle"] == "topk-0.1" and math.isnan(two["regret"]) and two["cell"] == "rate 1mbit"
    text = markdown(comparison)
    assert "|  | netsense | 1 of 1 | 8.0 | - | - | - | - | topk-0.1 |" in text
    assert "| rate 1mbit | netsense | 0 of 1 | - | topk-0.1 (1 seed) | 10.0 | - | topk-0.1 | - |" in text


def test_a_run_has_adapted_if_its_ratio_moved_or_it_sensed(tmp_path: Path) -> None:
    steps = load(write_experiment(tmp_path / "x", [fake("none", 1, 0.1)])).runs[0].steps
    assert not metrics.has_adapted(steps)
    assert not metrics.has_adapted(steps.iloc[:0])
    assert metrics.has_adapted(steps.assign(ratio=1 / (1 + steps["step"])))
    assert metrics.has_adapted(steps.assign(btlbw_bps=1e6))
    assert metrics.has_adapted(steps.assign(congested=False))


def test_dc2_has_a_regret_where_it_was_right_to_send_all(found: Found) -> None:
    runs = [fake("none", 1, 1.0), fake("topk-0.1", 1, 0.5), fake("dc2", 1, 0.6)]
    (one,) = found(runs, 0.75).regrets.to_dict("records")
    assert (one["scheme"], one["regret"]) == ("dc2", pytest.approx(0.2))


def test_a_scheme_of_ones_own_that_adapts_in_one_cell_is_adaptive_in_all(tmp_path: Path) -> None:
    cells = [{"topology.bottleneck.rate": rate} for rate in ("1mbit", "9mbit")]
    runs = [fake(scheme, 1, 0.5, cell=cell) for cell in cells for scheme in ("none", "topk-0.1", "mine")]
    folder = write_experiment(tmp_path / "x", runs)
    assert compare([load(folder)], 0.75).regrets.empty
    move_ratio(folder, "mine-train-1mbit")
    assert compare([load(folder)], 0.75).regrets["cell"].to_list() == ["rate 1mbit", "rate 9mbit"]


def test_an_adaptive_scheme_without_a_valid_run_has_a_row_and_no_regret(found: Found) -> None:
    runs = [fake("none", 1, 1.0), fake("topk-0.1", 1, 0.5), fake("netsense", 1, 0.4, invalid_reasons=BAD)]
    comparison = found(runs)
    (one,) = comparison.regrets.to_dict("records")
    assert (one["seeds"], one["invalid"]) == (0, 1) and math.isnan(one["regret"])
    assert "| netsense | 0 of 0 | - | topk-0.1 (1 seed) | 15.0 | - | topk-0.1 | - | 1 of 1 invalid |" in markdown(comparison)


def test_a_target_reached_before_the_first_step_gives_no_regret(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [fake("none", 1, 1.0), fake("topk-0.1", 1, 0.5), fake("netsense", 1, 0.4)])
    move_ratio(folder, "netsense")
    for path in folder.glob("*/evals.parquet"):
        evals = pd.read_parquet(path)
        evals.loc[0, "train_s"] = 0.0
        evals.to_parquet(path)
    assert compare([load(folder)], 0.1).regrets["regret"].isna().all()


# accuracy


def test_accuracy_at_equal_steps_is_compared_seed_by_seed(found: Found) -> None:
    runs = [fake("none", n, 0.1, (0.1, 0.2, final)) for n, final in ((1, 0.90), (2, 0.88), (3, 0.86))]
    runs += [fake("fp16", n, 0.1, (0.1, 0.2, final)) for n, final in ((1, 0.89), (2, 0.84))]  # -1 and -4 points
    comparison = found(runs)
    one = row(comparison.accuracies, "fp16")
    assert (one["steps"], one["seeds"], one["pairs"]) == (STEPS, 2, 2)
    assert (one["mean"], one["min"], one["max"]) == pytest.approx((0.865, 0.84, 0.89))
    assert (one["difference_points"], one["difference_min"], one["difference_max"]) == pytest.approx((-2.5, -4, -1))
    assert "| fp16 | 30 | 2 | 86.5 | 84.0 to 89.0 | -2.5 (-4.0 to -1.0) |" in markdown(comparison)


def test_runs_with_another_number_of_steps_are_left_out_and_named(found: Found) -> None:
    runs = [fake("none", n, 0.1) for n in (1, 2)]
    runs += [fake("fp16", 1, 0.1), fake("fp16", 2, 0.1, (0.1, 0.2, 0.99), steps=60), fake("3lc", 1, 0.1, steps=45)]
    comparison = found(runs)
    one = row(comparison.accuracies, "fp16")
    assert (one["seeds"], one["other_steps"], one["mean"]) == (1, [60], pytest.approx(0.9))
    assert row(comparison.accuracies, "3lc")["seeds"] == 0
    text = markdown(comparison)
    assert "| 1 of 2 with other steps (60) |" in text
    assert "| 3lc | 30 | 0 | - | - | - | 1 of 1 with other steps (45) |" in text


def test_a_run_that_was_not_evaluated_at_the_end_is_counted(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "x", [fake("none", 1, 0.1), fake("none", 2, 0.1)])
    path = folder / "none-train-2" / "evals.parquet"
    pd.read_parquet(path).assign(final=False).to_parquet(path)
    one = row(compare([load(folder)]).accuracies, "none")
    assert (one["seeds"], one["no_final"]) == (1, 1)


# several folders


def test_folders_are_merged_and_the_first_one_wins(tmp_path: Path) -> None:
    first = write_experiment(tmp_path / "a", [fake("none", 1, 0.4), fake("fp16", 1, 0.2)])
    second = write_experiment(tmp_path / "b", [fake("fp16", 1, 0.1), fake("3lc", 1, 0.1)])
    comparison = compare([load(first), load(second)])
    assert row(comparison.speedups, "fp16")["ratio"] == pytest.approx(2)
    assert row(comparison.speedups, "3lc")["ratio"] == pytest.approx(4)
    assert comparison.left_out == [f"Twice, an earlier folder's are used: of {second}, fp16-train-1."]
    assert row(compare([load(second), load(first)]).speedups, "fp16")["ratio"] == pytest.approx(4)


def test_a_folder_given_twice_counts_once(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "a", [fake("none", 1, 0.4), fake("fp16", 1, 0.2)])
    comparison = compare([load(folder), load(folder)])
    assert row(comparison.speedups, "fp16")["pairs"] == 1
    assert comparison.basis[1] == f"`{folder}`: no run is used."


def test_runs_with_other_seeds_are_more_repeats(tmp_path: Path) -> None:
    folders = [
        write_experiment(
            tmp_path / str(seed), [fake("none", 1, 0.4, manifest={"seed": seed}), fake("fp16", 1, 0.2, manifest={"seed": seed})]
        )
        for seed in (1, 7)
    ]
    assert row(compare([load(folder) for folder in folders]).speedups, "fp16")["pairs"] == 2


def test_runs_on_another_link_are_not_compared(tmp_path: Path) -> None:
    other = spec()
    other["spec"]["topology"]["workers"] = 8
    first = write_experiment(tmp_path / "a", [fake("none", 1, 0.4, manifest=spec())])
    second = write_experiment(tmp_path / "b", [fake("fp16", 1, 0.2, manifest=other)])
    comparison = compare([load(first), load(second)])
    assert comparison.speedups.empty
    expected = f"Not comparable: {second / 'fp16-train-1'} has another topology than {first / 'none-train-1'}."
    assert comparison.left_out == [expected]


def test_runs_that_stand_apart_in_their_own_folder_are_left_out(tmp_path: Path) -> None:
    other = {**spec(), "experiment": "other"}
    runs = [fake("none", 1, 0.4, manifest=spec()), fake("fp16", 1, 0.2, manifest=other)]
    comparison = compare([load(write_experiment(tmp_path / "quick", runs))])
    assert comparison.speedups.empty
    assert comparison.left_out == [f"Not comparable: {tmp_path / 'quick' / 'fp16-train-1'} is of another experiment, other."]


def test_runs_with_another_budget_are_compared(found: Found) -> None:
    runs = [fake("none", 1, 0.4, manifest=spec(budget={"steps": 30})), fake("fp16", 1, 0.2, manifest=spec(budget={"seconds": 9}))]
    assert row(found(runs).speedups, "fp16")["pairs"] == 1


def test_two_swept_workloads_of_one_kind_are_cells_of_their_own(found: Found) -> None:
    runs = []
    for model, step_s in (("resnet8", 0.4), ("resnet20", 0.6)):
        changed = {**spec(model=model), "cell": {"workload": f"train-{model}"}}
        runs += [fake("none", 1, step_s, manifest=changed), fake("fp16", 1, 0.2, manifest=changed)]
    names = iter("abcd")
    table = found([FakeRun(**{**vars(run), "cell": {"x": next(names)}}) for run in runs]).speedups  # folders need names of their own
    assert table["ratio"].to_list() == pytest.approx([2, 3])


# the command


def test_the_command_prints_or_writes_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_experiment(tmp_path / "a", [fake("none", 1, 0.4), fake("fp16", 1, 0.2)], also_planned=("fp16-train-2",))
    assert main([str(folder), "--accuracy", "0.75"]) == 0
    text = capsys.readouterr().out
    assert "Target: 0.75 (given)." in text
    assert f"- Missing: {folder / 'fp16-train-2'}." in text
    assert main([str(folder), "--accuracy", "0.75", "--out", str(tmp_path / "found.md")]) == 0
    assert (tmp_path / "found.md").read_text() == text


def test_replay_alone_needs_no_accuracy(found: Found) -> None:
    text = markdown(found([fake("none", 1, 0.4, workload="replay"), fake("fp16", 1, 0.2, workload="replay")]))
    assert "| replay | fp16 | 1 | 640.0 | 320.0 | 2.00 |" in text
    assert text.count("Nothing was trained.") == 2


def test_a_damaged_run_is_left_out(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "a", [fake("none", 1, 0.4), fake("fp16", 1, 0.2)])
    (folder / "fp16-train-1" / "steps.parquet").write_bytes(b"PAR1")
    assert row(compare([load(folder)]).speedups, "fp16")["invalid"] == 1


@pytest.mark.parametrize("kind", ["absent", "empty", "one of two", "unwritable"])
def test_what_cannot_be_read_or_written_is_one_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    good, empty = write_experiment(tmp_path / "good", [fake("none", 1, 0.4)]), tmp_path / "empty"
    empty.mkdir()
    arguments = {
        "absent": [tmp_path / "absent"],
        "empty": [empty],
        "one of two": [good, empty],
        "unwritable": [good, "--out", tmp_path / "absent" / "found.md"],
    }[kind]
    assert main([str(argument) for argument in arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert len(error.splitlines()) == 1 and error.endswith(".\n")


@pytest.mark.parametrize("text", ["75", "0", "much", "nan"])
def test_an_accuracy_is_a_fraction(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(tmp_path), "--accuracy", text])
    assert left.value.code == 2
    assert "write 0.75 for 75 %" in capsys.readouterr().err


def test_a_manifest_without_a_spec_is_read(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "a", [fake("none", 1, 0.4), fake("fp16", 1, 0.2)])
    for path in folder.glob("*/manifest.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "spec": None, "cell": None}))
    copy = shutil.copytree(folder, tmp_path / "b")
    assert row(compare([load(folder), load(copy)]).speedups, "fp16")["ratio"] == pytest.approx(2)
