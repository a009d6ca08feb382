"""Expansion: every scheme in every cell, every repeat, in a fair order, under a readable unique name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.spec import from_mapping
from testbed.sweep import expand, label_values, short_names

REPLAY = {"kind": "replay", "model": "resnet8", "compute": "60ms", "budget": {"seconds": 20}}
BASE = {
    "name": "e",
    "backend": "emulated",
    "topology": {"kind": "dumbbell", "workers": 2, "bottleneck": {"rate": "40mbit"}, "access": {"rate": "100mbit"}},
    "workload": REPLAY,
    "schemes": ["none", "fp16", "topk-0.1"],
}


def slugs(**changes):
    return [run.slug for run in expand(from_mapping({**BASE, **changes}))]


def test_without_sweep_or_repeats_a_run_is_named_by_its_scheme():
    assert slugs() == ["none", "fp16", "topk-0.1"]


def test_a_swept_scalar_is_named_by_the_end_of_its_path_and_its_value():
    assert slugs(schemes=["topk-0.1"], sweep={"topology.bottleneck.rate": ["10mbit", "40mbit"]}) == [
        "topk-0.1_rate-10mbit",
        "topk-0.1_rate-40mbit",
    ]


def test_a_swept_mapping_is_named_by_its_kind():
    train = {
        "kind": "train",
        "model": "resnet8",
        "dataset": "cifar10",
        "optimizer": {"name": "sgd", "lr": 0.1},
        "budget": {"steps": 3},
    }
    runs = expand(from_mapping({**BASE, "schemes": ["none"], "sweep": {"workload": [train, REPLAY]}}))
    assert [(run.slug, run.cell) for run in runs] == [("none_train", {"workload": "train"}), ("none_replay", {"workload": "replay"})]
    assert runs[0].experiment.workload.kind == "train"


def test_fields_whose_paths_end_alike_are_named_by_more_of_the_path():
    sweep = {"topology.bottleneck.rate": ["1mbit"], "topology.access.rate": ["2mbit"], "topology.bottleneck.delay": ["1ms"]}
    assert slugs(schemes=["none"], sweep=sweep) == ["none_bottleneck.rate-1mbit_access.rate-2mbit_delay-1ms"]


def test_schemes_are_side_by_side_in_each_cell_and_rotate_with_the_repeat():
    assert slugs(repeats=2, sweep={"topology.bottleneck.loss": ["1%", 0]}) == [
        "none_loss-1pct_r1",
        "fp16_loss-1pct_r1",
        "topk-0.1_loss-1pct_r1",
        "none_loss-0_r1",
        "fp16_loss-0_r1",
        "topk-0.1_loss-0_r1",
        "fp16_loss-1pct_r2",
        "topk-0.1_loss-1pct_r2",
        "none_loss-1pct_r2",
        "fp16_loss-0_r2",
        "topk-0.1_loss-0_r2",
        "none_loss-0_r2",
    ]


def test_the_seed_grows_with_the_repeat_and_is_the_same_for_every_scheme():
    runs = expand(from_mapping({**BASE, "seed": 7, "repeats": 3}))
    assert {(run.repeat, run.seed) for run in runs} == {(1, 7), (2, 8), (3, 9)}


def test_a_run_carries_its_own_cell_and_scheme_and_no_sweep():
    sweep = {"topology.bottleneck.rate": ["10mbit", "40mbit"], "transport.ecn": [False, True]}
    run = expand(from_mapping({**BASE, "sweep": sweep}))[-1]
    assert run.experiment_name == "e"
    assert run.cell == {"topology.bottleneck.rate": "40mbit", "transport.ecn": "true"}
    assert run.experiment.topology.bottleneck.rate_bps == 40e6
    assert run.experiment.transport.ecn is True
    assert run.experiment.schemes == ("topk-0.1",)
    assert run.experiment.sweep == {}
    assert run.scheme.slug == "topk-0.1"


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["10mbit", 3, 0.5, True, None], ["10mbit", "3", "0.5", "true", "null"]),
        ([{"kind": "train", "model": "a"}, {"kind": "train", "model": "b"}], ["train-a", "train-b"]),
        ([{"kind": "train", "model": "a"}, {"kind": "replay", "model": "a"}], ["train", "replay"]),
        ([{"rate": "1mbit", "delay": "1ms"}, {"rate": "2mbit"}], ["rate-1mbit-delay-1ms", "rate-2mbit"]),
        ([[], [1, 2]], ["empty", "1-2"]),
        ([{"kind": "a"}, {"kind": "a", "x": 1}, {"kind": "a"}], ["a", "a-1", "a-2"]),
    ],
)
def test_values_are_labelled_for_people(values, labels):
    assert label_values(values) == labels


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join), min_size=1, max_size=6, unique=True))
def test_short_names_are_unique_ends_of_the_paths(fields):
    names = short_names(fields)
    assert len(set(names.values())) == len(fields)
    assert all(field == name or field.endswith(f".{name}") for field, name in names.items())


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.lists(st.integers(1, 90), min_size=1, max_size=4, unique=True), st.integers(1, 3))
def test_each_scheme_meets_each_cell_once_a_repeat_under_a_unique_folder_safe_name(repeats, rates, schemes):
    sweep = {"topology.bottleneck.rate": [f"{rate} Mbit" for rate in rates]}
    experiment = from_mapping({**BASE, "schemes": BASE["schemes"][:schemes], "repeats": repeats, "sweep": sweep})
    runs = expand(experiment)
    assert len({run.slug for run in runs}) == len(runs) == repeats * len(rates) * schemes
    assert len({(run.scheme.slug, run.repeat, *run.cell.values()) for run in runs}) == len(runs)
    assert all(set(run.slug) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") for run in runs)
