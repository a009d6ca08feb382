"""Real machines in an experiment file: they go with backend: cluster, and with nothing that only an emulated network has."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.spec import load, resolved, unsupported

REPOSITORY = Path(__file__).parents[3]
GOOD = """\
name: real
backend: cluster
topology: {kind: machines, workers: 4}
workload: {kind: replay, model: vgg16, compute: 60ms, budget: {steps: 5}}
schemes: [none, fp16]
"""


def test_it_takes_a_number_of_workers_and_nothing_of_a_network(write):
    experiment = load(write(GOOD))
    assert unsupported(experiment) == []
    spec = resolved(experiment)
    assert spec["topology"] == {"kind": "machines", "workers": 4}
    assert (spec["backend"], spec["hosts"], spec["routing"], spec["transport"]) == ("cluster", None, None, None)


BAD = [
    ("cluster", "emulated", "e.yaml:3: topology.kind: 'machines' need backend: cluster, not emulated"),
    (
        "{kind: machines, workers: 4}",
        "{kind: star, workers: 3, link: {rate: 1mbit}}",
        "e.yaml:3: topology.kind: backend: cluster runs on real machines, which nobody shapes; use {kind: machines, workers: 3}",
    ),
    ("workers: 4", "workers: 4, mtu: 1500", "e.yaml:3: topology.mtu: unknown key; valid keys are kind, workers"),
    ("workers: 4", "workers: 1", "e.yaml:3: topology.workers: must be at least 2, not 1"),
    (
        "schemes",
        "conditions: [{at: 3s, link: bottleneck, rate: 1mbit}]\nschemes",
        "e.yaml:5: conditions: the network of real machines is not ours to change; leave it out, or use backend: emulated",
    ),
    (
        "schemes",
        "transport:\n  congestion_control: cubic\nschemes",
        "e.yaml:6: transport.congestion_control: the TCP settings of real machines are theirs, and recorded; leave it out",
    ),
    (
        "schemes",
        "sweep:\n  transport.congestion_control: [bbr, cubic]\nschemes",
        "e.yaml:6: sweep.transport.congestion_control[0]: the TCP settings of real machines are theirs, and recorded; leave it out",
    ),
    ("schemes", "dilation: auto\nschemes", "e.yaml:5: dilation: the time of real machines cannot be slowed down; leave it out"),
    ("schemes", "dilation: 2\nschemes", "e.yaml:5: dilation: the time of real machines cannot be slowed down; leave it out"),
    (
        "schemes",
        "stragglers: [{worker: 1, slowdown: 2}]\nschemes",
        "e.yaml:5: stragglers: real machines are as fast as they are; leave it out, or use backend: emulated",
    ),
    ("schemes", "routing: {}\nschemes", "e.yaml:5: routing: the paths between real machines are not ours to choose; leave it out"),
    ("schemes", "hosts: {kind: process}\nschemes", "e.yaml:5: hosts.kind: on real machines torchrun starts the workers; leave it out"),
]


@pytest.mark.parametrize(("old", "new", "expected"), BAD, ids=[row[2].split(": ")[1] for row in BAD])
def test_what_only_an_emulated_network_has_is_refused_with_its_line(problems, old, new, expected):
    assert old in GOOD
    assert expected in problems(GOOD.replace(old, new, 1))


def test_no_length_is_foretold_for_steps_over_a_network_of_unknown_rate(write):
    from testbed.planning import Options, plan_experiment

    plan = plan_experiment(write(GOOD), Options())
    assert [row["estimated_s"] for row in plan.to_json()["runs"]] == [None, None]


def test_the_example_is_valid():
    experiment = load(REPOSITORY / "experiments" / "cluster" / "train.yaml")
    assert unsupported(experiment) == []
    assert (experiment.backend, experiment.topology.workers) == ("cluster", 4)
