"""How long runs will take: budgets, what was measured beside them, and what cannot be told."""

from __future__ import annotations

import pytest

from testbed.forecast import ASSUMED_OVERHEAD_S, WARM_UP_STEPS, Duration, Forecast, dense_step_s, span
from testbed.spec import from_mapping
from testbed.sweep import expand

BASE = {
    "name": "e",
    "topology": {"kind": "dumbbell", "workers": 4, "bottleneck": {"rate": "40mbit", "delay": "5ms"}, "access": {"rate": "100mbit"}},
    "schemes": ["none", "fp16"],
}
TRAIN = {"kind": "train", "model": "resnet8", "dataset": "fashion-mnist", "optimizer": {"name": "sgd", "lr": 0.1}}
REPLAY = {"kind": "replay", "model": "vgg16", "compute": "60ms"}


def runs(workload, **changes):
    return expand(from_mapping({**BASE, "workload": workload, **changes}))


def manifest(run, train_s, wall_s, status="complete"):
    return {
        "status": status,
        "scheme": run.scheme.slug,
        "cell": run.cell,
        "spec": {"workload": {"kind": run.experiment.workload.kind}},
        "workers": [{"train_s": train_s}],
        "started": "2026-01-01T10:00:00+00:00",
        "finished": f"2026-01-01T10:{int(wall_s) // 60:02d}:{int(wall_s) % 60:02d}+00:00",
    }


def warm_up_s(run):
    return WARM_UP_STEPS * dense_step_s(run) * run.experiment.dilation


def test_a_budget_of_seconds_is_taken_at_its_word_and_the_rest_is_assumed():
    found = Forecast().of_all(runs({**TRAIN, "budget": {"seconds": 30}}))
    assert found == Duration(2 * (30 + ASSUMED_OVERHEAD_S))
    assert found.words() == "about 84 s"


def test_slow_steps_of_a_warm_up_are_foreseen_until_runs_tell():
    none, fp16 = runs({**REPLAY, "budget": {"seconds": 30}})
    assert Forecast().of(none) == Duration(30 + ASSUMED_OVERHEAD_S + warm_up_s(none))
    assert Forecast().of(fp16) == Duration(30 + ASSUMED_OVERHEAD_S + warm_up_s(fp16), at_most=True)
    assert Forecast([manifest(none, 30.0, 55)]).of(fp16) == Duration(55.0)


def test_what_runs_cost_beside_their_budgets_is_learned_by_the_median():
    first, second = runs({**REPLAY, "budget": {"seconds": 30}})
    forecast = Forecast(manifest(first, 30.0, wall_s) for wall_s in (37, 38, 60))
    assert forecast.of(second) == Duration(38.0)
    assert forecast.measured_runs == 3


def test_each_kind_of_workload_has_its_own_overhead():
    sweep = {"workload": [{**TRAIN, "budget": {"seconds": 20}}, {**REPLAY, "budget": {"seconds": 30}}]}
    train, replay = (run for run in runs(sweep["workload"][0], sweep=sweep) if run.scheme.slug == "none")
    forecast = Forecast([manifest(train, 20.0, 35), manifest(replay, 30.0, 36)])
    assert (forecast.of(train).seconds, forecast.of(replay).seconds) == (35.0, 36.0)


def test_a_dilated_run_takes_as_much_longer_and_what_it_cost_beside_is_what_remains():
    first, second = runs({**REPLAY, "budget": {"seconds": 30}}, dilation=5)
    assert Forecast().of(first) == Duration(5 * 30 + ASSUMED_OVERHEAD_S + warm_up_s(first))
    assert Forecast([{**manifest(first, 30.0, 160), "dilation": 5}]).of(second) == Duration(5 * 30 + 10.0)
    steps, slow = (runs({**REPLAY, "budget": {"steps": 7}}, dilation=dilation)[0] for dilation in (1, 5))
    taken = Forecast().of(steps).seconds - ASSUMED_OVERHEAD_S
    assert Forecast().of(slow).seconds == pytest.approx(5 * taken + ASSUMED_OVERHEAD_S)
    assert Forecast([{**manifest(slow, 2.0, 30), "dilation": 5}]).of(slow) == Duration(30.0)


@pytest.mark.parametrize("broken", [{}, {"workers": []}, {"started": None}, {"finished": "yesterday"}, {"status": "failed"}])
def test_a_run_that_did_not_end_or_does_not_say_when_teaches_nothing(broken):
    run = runs({**REPLAY, "budget": {"seconds": 30}})[0]
    assert Forecast([{**manifest(run, 30.0, 40), **broken} if broken else {}]).measured_runs == 0


def test_steps_of_a_replay_are_predicted_as_if_nothing_were_compressed():
    none, fp16 = runs({**REPLAY, "budget": {"steps": 10}})
    gradient_bits = 4 * 8 * 134_670_756  # VGG-16 with 100 classes has 134.7 million parameters
    step_s = 0.060 + 1.5 * gradient_bits / 40e6 * 9014 / 8948 + 6 * 0.010
    step_s_small_frames = 0.060 + 1.5 * gradient_bits / 40e6 * 1514 / 1448 + 6 * 0.010
    found = Forecast().of(none)
    assert not found.at_most
    steps_s = found.seconds - ASSUMED_OVERHEAD_S - warm_up_s(none)
    assert min(step_s, step_s_small_frames) * 9.9 < steps_s < max(step_s, step_s_small_frames) * 10.1
    assert Forecast().of(fp16).at_most
    assert Forecast().of(fp16).words().startswith("at most")


def test_the_earlier_of_two_limits_counts():
    run = runs({**REPLAY, "budget": {"steps": 1000, "seconds": 30}})[0]
    assert Forecast().of(run).seconds == 30 + ASSUMED_OVERHEAD_S + warm_up_s(run)


@pytest.mark.parametrize("budget", [{"steps": 100}, {"accuracy": 0.8}])
def test_training_of_unknown_length_is_said_to_be_until_another_repeat_has_been_measured(budget):
    planned = runs({**TRAIN, "budget": budget}, repeats=2)
    assert Forecast().of_all(planned) == Duration(unknown_runs=4)
    assert Forecast().of_all(planned).words() == "4 runs of unknown length"
    forecast = Forecast([manifest(planned[0], 50.0, 65)])
    assert forecast.of_all(planned) == Duration(130.0, unknown_runs=2)
    assert forecast.of_all(planned).words() == "about 2 min and 2 runs of unknown length"


def test_an_accuracy_with_a_limit_takes_at_most_that():
    assert Forecast().of(runs({**TRAIN, "budget": {"accuracy": 0.8, "seconds": 60}})[0]) == Duration(72.0, at_most=True)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (45.4, "45 s"), (99.6, "2 min"), (3540, "59 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min"), (200_000, "2 d 08 h")],
)
def test_times_are_said_in_the_units_that_matter(seconds, words):
    assert span(seconds) == words
