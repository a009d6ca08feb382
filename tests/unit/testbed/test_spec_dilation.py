"""Dilation in experiment files: what may be asked for, and what the rest of the experiment makes of it."""

from __future__ import annotations

import pytest
from pretended import BASE, PretendedExperiment, make_able

from testbed.spec import load, resolved, unsupported
from testbed.sweep import expand

GOOD = """\
name: small
topology: {kind: dumbbell, workers: 2, bottleneck: {rate: 600kbit, delay: 5ms}, access: {rate: 100mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {steps: 5}}
schemes: [none]
"""


def test_time_is_not_dilated_unless_asked_for(write):
    assert load(write(GOOD)).dilation == 1.0


def test_dilation_can_be_swept(write):
    runs = expand(load(write(GOOD + "sweep: {dilation: [1, 2.5]}\n")))
    assert [(run.experiment.dilation, run.slug) for run in runs] == [(1.0, "none_dilation-1"), (2.5, "none_dilation-2.5")]


def test_nothing_else_of_the_experiment_changes(write):
    plain, slow = (load(write(GOOD + text)) for text in ("", "dilation: 5\n"))
    assert {**resolved(slow), "dilation": 1.0} == resolved(plain)
    assert slow.network(1) == plain.network(1)


def test_a_scheme_that_cannot_be_slowed_down_is_refused_only_where_time_is_dilated(write):
    text = GOOD.replace("[none]", "[none, powersgd-2, topk-0.1]")
    assert unsupported(load(write(text))) == []
    (sentence,) = unsupported(load(write(text + "sweep: {dilation: [1, 2, 3]}\n")))
    assert sentence == "dilation: powersgd-2 computes where it cannot be slowed down with the rest; leave out one of the two"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("0.5", "must be auto or a number from 1 to 1000, not 0.5"),
        ("2000", "must be auto or a number from 1 to 1000, not 2000"),
        ("fast", "must be auto or a number from 1 to 1000, not 'fast'"),
        ("100", "must be at most 50 here: slower, a link of 600kbit goes under 12kbit"),
    ],
)
def test_what_cannot_be_is_told(problems, value, complaint):
    assert problems(GOOD + f"dilation: {value}\n") == [f"e.yaml:5: dilation: {complaint}"]


def test_the_manifest_tells_the_experiments_network_and_the_sandbox_is_given_the_slower_one(monkeypatch, tmp_path):
    make_able(monkeypatch, tmp_path)
    experiment = PretendedExperiment(tmp_path, monkeypatch)
    experiment.write(**BASE, dilation=4)
    plans = {}
    monkeypatch.setattr(
        "testbed.runner.backend.execute", lambda plan, *others: plans.update({plan.run: plan}) or experiment.execute(plan, *others)
    )
    experiment.run()
    manifest, plan = experiment.manifest("none"), plans["none"]
    assert manifest["dilation"] == plan.dilation == 4.0
    told, given = manifest["network"]["links"][0]["forward"], plan.network.links[0].forward
    assert (told["rate_bps"], told["delay_s"]) == (40e6, 0.005)
    assert (given.rate_bps, given.delay_s, given.queue_bytes) == (10e6, 0.02, told["queue_bytes"])
    assert plan.mtu == manifest["network"]["mtu"]


def test_slower_time_lets_a_machine_carry_a_faster_network(monkeypatch, tmp_path):
    make_able(monkeypatch, tmp_path)  # it carries 250 Mbit/s
    experiment = PretendedExperiment(tmp_path, monkeypatch)
    topology = {**BASE["topology"], "bottleneck": {"rate": "400mbit"}, "access": {"rate": "1gbit"}}
    experiment.write(**{**BASE, "topology": topology, "dilation": 10})
    assert experiment.run() == experiment.folder


@pytest.mark.parametrize(
    ("rate", "mtu", "factor"), [("20mbit", 1500, 1.0), ("100mbit", 1500, 3.0), ("100mbit", 9000, 2.0), ("1gbit", 9000, 20.0)]
)
def test_auto_is_the_smallest_factor_with_which_two_cores_carry_the_ring(write, rate, mtu, factor):
    # the ring of 6 workers on a star crosses its switch 6 times
    dumbbell = "{kind: dumbbell, workers: 2, bottleneck: {rate: 600kbit, delay: 5ms}, access: {rate: 100mbit}}"
    star = f"{{kind: star, workers: 6, mtu: {mtu}, link: {{rate: {rate}}}}}"
    experiment = load(write(GOOD.replace(dumbbell, star) + "dilation: auto\n"))
    assert experiment.dilation == factor
    assert resolved(experiment)["dilation"] == factor
