"""Dilation in experiment files: what may be asked for, and what the rest of the experiment makes of it."""

from __future__ import annotations

import pytest
from pretended import BASE, PretendedExperiment, make_able

from testbed.spec import congestion, load, resolved, unsupported
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
    plain, slow = (load(write(GOOD + "transport: {congestion_control: reno}\n" + text)) for text in ("", "dilation: 5\n"))
    assert {**resolved(slow), "dilation": 1.0} == resolved(plain)
    assert slow.network(1) == plain.network(1)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("", ["cubic"]),
        ("dilation: 5\n", ["reno"]),
        ("sweep: {dilation: [1, 5]}\n", ["reno", "reno"]),
        ("sweep: {dilation: [5, 1]}\n", ["reno", "reno"]),
        ("dilation: auto\n", ["cubic"]),  # two cores carry it, so it is 1
        ("dilation: auto\nsweep: {topology.bottleneck.rate: [1mbit, 100mbit], topology.mtu: [1500]}\n", ["reno", "reno"]),
        ("dilation: 5\ntransport: {congestion_control: cubic}\n", ["cubic"]),
        ("dilation: 5\nsweep: {transport.congestion_control: [cubic, reno]}\n", ["cubic", "reno"]),
        ("transport: {congestion_control: bbr}\n", ["bbr"]),
    ],
)
def test_all_cells_have_reno_where_any_is_dilated_and_none_is_named(write, asked, used):
    experiment = load(write(GOOD + asked))
    runs = expand(experiment)
    assert [run.experiment.congestion_control for run in runs] == used
    assert [resolved(run.experiment)["transport"]["congestion_control"] for run in runs] == used
    assert resolved(experiment)["transport"]["congestion_control"] == used[0]


@pytest.mark.parametrize("asked", ["", "transport: {congestion_control: reno}\ndilation: 5\n", "transport: {congestion_control: cubic}\n"])
def test_nothing_is_said_of_a_congestion_control_that_is_usual_or_fits(write, asked):
    runs = expand(load(write(GOOD + asked)))
    assert [congestion.substituted(run.experiment) for run in runs] == [[]]
    assert congestion.warnings(run.experiment for run in runs) == []


def test_cubic_named_for_dilated_time_is_warned_of_once(write):
    text = GOOD.replace("[none]", "[none, 3lc]") + "transport: {congestion_control: cubic}\nsweep: {dilation: [1, 2, 3]}\n"
    runs = expand(load(write(text)))
    (warning,) = congestion.warnings(run.experiment for run in runs)
    assert warning.startswith("transport.congestion_control: cubic keeps time by the machine's clock")
    assert all(congestion.substituted(run.experiment) == [] for run in runs)


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
    assert plan.transport["congestion_control"] == "reno"
    (sentence,) = manifest["substituted"]
    assert sentence == "congestion control: reno in place of cubic, which grows by a clock that dilation does not slow down"


def test_who_names_cubic_for_dilated_time_is_warned_and_has_it(monkeypatch, tmp_path):
    make_able(monkeypatch, tmp_path)
    experiment = PretendedExperiment(tmp_path, monkeypatch)
    experiment.write(**BASE, transport={"congestion_control": "cubic"}, sweep={"dilation": [2, 4]})
    experiment.run()
    assert experiment.output.getvalue().count("cubic keeps time by the machine's clock") == 1
    assert experiment.manifest("none_dilation-4")["spec"]["transport"]["congestion_control"] == "cubic"


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
