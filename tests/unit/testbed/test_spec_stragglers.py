"""Stragglers in experiment files: who is slow and how, and what is wrong with saying so."""

from __future__ import annotations

import pytest

from testbed.forecast import dense_step_s, slowest
from testbed.spec import load, resolved
from testbed.sweep import expand

GOOD = """\
name: small
topology: {kind: star, workers: 4, link: {rate: 40mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {steps: 5}}
schemes: [none, fp16]
"""


def test_without_stragglers_every_worker_is_as_fast_as_its_machine(write):
    experiment = load(write(GOOD))
    assert [experiment.slowdowns(rank) for rank in range(4)] == [[]] * 4
    assert [experiment.cpus(rank) for rank in range(4)] == [None] * 4


def test_a_slowdown_is_constant_or_drawn_and_for_one_worker_or_all(write):
    text = "stragglers: [{worker: 2, slowdown: 1.5}, {worker: 0, slowdown: [1, 3]}, {worker: all, slowdown: 2, chance: 10%}]\n"
    experiment = load(write(GOOD + text))
    for_all = {"low": 2.0, "high": 2.0, "chance": 0.1}
    assert experiment.slowdowns(0) == [{"low": 1.0, "high": 3.0, "chance": 1.0}, for_all]
    assert experiment.slowdowns(1) == [for_all]
    assert experiment.slowdowns(2) == [{"low": 1.5, "high": 1.5, "chance": 1.0}, for_all]


def test_the_fewest_processors_that_are_said_of_a_worker_hold(write):
    hosts = "hosts: {kind: process, cpus: 0.5}\nstragglers: [{worker: 1, cpus: 0.25}, {worker: 2, cpus: 2}]\n"
    experiment = load(write(GOOD + hosts))
    assert [experiment.cpus(rank) for rank in range(4)] == [0.5, 0.25, 0.5, 0.5]


def test_stragglers_can_be_swept_and_every_run_has_its_own(write):
    sweep = "sweep: {stragglers: [[], [{worker: 1, slowdown: 2}], [{worker: 1, slowdown: [2, 4]}]], hosts.cpus: [0.5, 1]}\n"
    runs = expand(load(write(GOOD + "hosts: {kind: process}\n" + sweep)))
    assert len(runs) == 3 * 2 * 2
    assert [run.experiment.slowdowns(1) for run in runs[::4]] == [
        [],
        [{"low": 2.0, "high": 2.0, "chance": 1.0}],
        [{"low": 2.0, "high": 4.0, "chance": 1.0}],
    ]
    assert {run.experiment.cpus(3) for run in runs} == {0.5, 1.0}
    assert len({run.slug for run in runs}) == len(runs)


def test_the_resolved_experiment_says_them_in_full(write):
    spec = resolved(load(write(GOOD + "stragglers: [{worker: 2, slowdown: 1.5}]\n")))
    assert spec["stragglers"] == [{"worker": 2, "slowdown": [1.5, 1.5], "chance": 1.0, "cpus": None}]


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{worker: 4, slowdown: 2}", "stragglers[0].worker: there is no worker 4: they are numbered from 0 to 3"),
        ("{worker: any, slowdown: 2}", "stragglers[0].worker: 'any' is no worker; give a worker's number, from 0 on, or all"),
        ("{worker: true, slowdown: 2}", "stragglers[0].worker: True is no worker"),
        ("{slowdown: 2}", "stragglers[0].worker: missing; say who is slow"),
        ("{worker: 1}", "stragglers[0]: say how it is slow"),
        ("{worker: 1, slowdown: 0.5}", "stragglers[0].slowdown: 0.5 is no slowdown; give a number of at least 1"),
        ("{worker: 1, slowdown: [3, 1]}", "stragglers[0].slowdown: must go from the smaller to the larger: [1, 3]"),
        ("{worker: 1, slowdown: [1, 2, 3]}", "stragglers[0].slowdown: [1, 2, 3] is no slowdown"),
        ("{worker: 1, slowdown: .inf}", "stragglers[0].slowdown: inf is no slowdown"),
        ("{worker: 1, slowdown: fast}", "stragglers[0].slowdown: 'fast' is no slowdown"),
        ("{worker: 1, slowdown: 2, chance: 0}", "stragglers[0].chance: must be above 0"),
        ("{worker: 1, slowdown: 2, chance: 120%}", "stragglers[0].chance: '120%' is more than the whole"),
        ("{worker: 1, cpus: 1, chance: 10%}", "stragglers[0].chance: is the chance of a slowdown, and none is given"),
        ("{worker: 1, cpus: 0}", "stragglers[0].cpus: must be above 0"),
        ("{worker: 1, slowness: 2}", "stragglers[0].slowness: unknown key; did you mean 'slowdown'?"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_remedy(problems, entry, complaint):
    told = problems(GOOD + f"stragglers:\n- {entry}\n")
    assert any(line.startswith("e.yaml:6: " + complaint) for line in told), told


def test_a_forecast_waits_for_the_slowest_worker(write):
    plain, slow = (
        expand(load(write(GOOD + text)))[0]
        for text in ("", "stragglers: [{worker: 1, slowdown: 3}, {worker: 2, slowdown: 2}, {worker: all, slowdown: 1.5, chance: 100%}]\n")
    )
    assert (slowest(plain), slowest(slow)) == (1.0, pytest.approx(4.5))
    assert dense_step_s(slow) - dense_step_s(plain) == pytest.approx(3.5 * 0.060)
