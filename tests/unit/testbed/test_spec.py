"""Experiment files: what they say is what runs, and what is wrong with them is told all at once, with line and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from testbed.spec import SpecError, from_mapping, load, resolved, unsupported, variants
from topologies import LinkSpec

REPOSITORY = Path(__file__).parents[3]

GOOD = """\
name: small
backend: emulated
topology:
  kind: dumbbell
  workers: 4
  bottleneck: {rate: 40mbit, delay: 5ms}
  access: {rate: 100mbit}
workload:
  kind: train
  model: resnet8
  dataset: fashion-mnist
  optimizer: {name: sgd, lr: 0.05}
  budget: {seconds: 60}
schemes: [none, topk-0.1]
"""


def test_the_quick_experiment_is_valid_and_supported():
    experiment = load(REPOSITORY / "experiments" / "quick.yaml")
    assert experiment.name == "quick"
    assert [variant.workload.kind for _, variant in variants(experiment)] == ["train", "replay"]
    assert unsupported(experiment) == []


def test_a_link_becomes_a_pair_of_si_specs_with_the_reverse_overriding(write):
    text = GOOD.replace("delay: 5ms", "delay: 5ms, jitter: 1ms, loss: 1%, queue: 100kB, reverse: {rate: 10mbit, queue: 0.5bdp}")
    link = load(write(text)).topology.network().links[0]
    assert link.forward == LinkSpec(40e6, 0.005, 0.001, 0.01, 100_000, None)
    assert link.backward == LinkSpec(10e6, 0.005, 0.001, 0.01, None, 0.5)


def test_a_link_without_reverse_is_the_same_both_ways_with_a_queue_of_one_bdp(write):
    link = load(write(GOOD)).topology.network().links[0]
    assert link.forward == link.backward == LinkSpec(40e6, 0.005, queue_bdp=1.0)


@pytest.mark.parametrize(("mtu", "resolved_mtu"), [("auto", 1500), ("9000", 9000)])
def test_the_mtu_is_chosen_by_the_slowest_link_unless_given(write, mtu, resolved_mtu):
    assert load(write(GOOD.replace("workers: 4", f"workers: 4\n  mtu: {mtu}"))).topology.resolved_mtu() == resolved_mtu


@pytest.mark.parametrize(
    ("topology", "hosts", "links"),
    [
        ("{kind: star, workers: 3, link: {rate: 1gbit}}", 3, 3),
        ("{kind: dumbbell, workers: 2, bottleneck: {rate: 1mbit}, access: {rate: 1mbit}}", 2, 3),
        ("{kind: leafspine, workers: 4, leaves: 2, spines: 2, fabric: {rate: 1mbit}, access: {rate: 1mbit}}", 4, 8),
    ],
)
def test_every_topology_builds_its_network(topology, hosts, links):
    import yaml

    network = from_mapping({**yaml.safe_load(GOOD), "topology": yaml.safe_load(topology)}).topology.network()
    assert (len(network.hosts), len(network.links)) == (hosts, links)


def test_hosts_for_traffic_are_asked_for_by_number_and_may_be_named_where_hosts_are(write, problems):
    asked = GOOD.replace("workers: 4", "workers: 4\n  traffic_hosts: 2")
    network = load(write(asked)).topology.network()
    assert (network.hosts, network.traffic_hosts) == (("h1", "h2", "h3", "h4"), ("t1", "t2"))
    assert load(write(GOOD)).topology.network().traffic_hosts == ()
    background = "{at: 1s, background: {from: t1, to: t2}}"
    assert load(write(f"{asked}conditions: [{background}]\nrouting: {{pinned: [[t1, s1, s2, t2]]}}\n")).conditions
    assert "no host 't1'" in problems(f"{GOOD}conditions: [{background}]\n")[0]
    assert "topology.traffic_hosts: must be at least 0" in problems(asked.replace("traffic_hosts: 2", "traffic_hosts: -1"))[0]


def test_a_training_job_is_plain_si(write):
    text = GOOD.replace(
        "budget: {seconds: 60}",
        "budget: {seconds: 1min, accuracy: 0.8}\n  eval_every: 500ms\n  eval_steps: [50, 100]\n  target_accuracy: 75%",
    )
    assert load(write(text)).workload.to_job() == {
        "kind": "train",
        "model": "resnet8",
        "dataset": "fashion-mnist",
        "data_dir": None,
        "batch_size": 32,
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0},
        "budget": {"seconds": 60.0, "steps": None, "accuracy": 0.8},
        "eval_every_s": 0.5,
        "eval_steps": (50, 100),
        "eval_samples": 1000,
        "warmup_steps": 8,
        "target_accuracy": 0.75,
    }


def test_a_replay_job_is_plain_si(write):
    text = GOOD.split("workload:")[0] + "workload: {kind: replay, model: vgg16, compute: 60ms, budget: {steps: 5}}\nschemes: [none]\n"
    assert load(write(text)).workload.to_job() == {
        "kind": "replay",
        "model": "vgg16",
        "compute_s": 0.06,
        "batch_size": 32,
        "budget": {"seconds": None, "steps": 5, "accuracy": None},
        "warmup_steps": 8,
    }


def test_the_resolved_spec_is_json_in_si_with_both_directions_and_the_mtu(write):
    spec = resolved(load(write(GOOD)))
    assert json.loads(json.dumps(spec)) == spec
    assert spec["topology"]["mtu"] == 1500
    assert spec["topology"]["bottleneck"]["backward"]["rate_bps"] == 40e6
    assert spec["workload"]["budget"]["seconds"] == 60.0
    assert spec["transport"] == {"congestion_control": "cubic", "ecn": False}
    assert [scheme["slug"] for scheme in spec["schemes"]] == ["none", "topk-0.1"]


# Each row: text to replace in GOOD, by what, and the line of the error, whole or its beginning.
BAD = [
    ("{rate: 40mbit, delay", "{rate: 40mbit, rte: 1, delay", "e.yaml:6: topology.bottleneck.rte: unknown key; did you mean 'rate'?"),
    ("{rate: 40mbit, delay", "{delay", "e.yaml:6: topology.bottleneck.rate: missing; a link needs a rate, such as rate: 40mbit"),
    ("40mbit", "40mb", "e.yaml:6: topology.bottleneck.rate: '40mb' is not a rate; write a number and bit, kbit, mbit or gbit"),
    ("40mbit", "40", "e.yaml:6: topology.bottleneck.rate: '40' is not a rate;"),
    ("40mbit", "0mbit", "e.yaml:6: topology.bottleneck.rate: must be above 0"),
    ("delay: 5ms", "delay: -5ms", "e.yaml:6: topology.bottleneck.delay: '-5ms' is negative"),
    ("delay: 5ms", "jitter: 5ms", "e.yaml:6: topology.bottleneck.jitter: jitter must not exceed the delay"),
    ("delay: 5ms", "loss: 1", "e.yaml:6: topology.bottleneck.loss: must be below 1"),
    ("delay: 5ms", "queue: 0bdp", "e.yaml:6: topology.bottleneck.queue: must be above 0"),
    ("delay: 5ms", "queue: 1kB", "e.yaml:6: topology.bottleneck.queue: 1kB cannot hold one frame (1514 bytes at MTU 1500)"),
    ("delay: 5ms", "reverse: {rat: 1mbit}", "e.yaml:6: topology.bottleneck.reverse.rat: unknown key; did you mean 'rate'?"),
    (
        "delay: 5ms",
        "colour: red",
        "e.yaml:6: topology.bottleneck.colour: unknown key; valid keys are rate, delay, jitter, loss, queue",
    ),
    ("  access: {rate: 100mbit}\n", "", "e.yaml:3: topology.access: missing"),
    ("{rate: 100mbit}", "100mbit", "e.yaml:7: topology.access: must be a mapping of `key: value`, not '100mbit'"),
    ("workers: 4", "workers: 1", "e.yaml:5: topology.workers: must be at least 2, not 1"),
    ("workers: 4", "workers: four", "e.yaml:5: topology.workers: must be a whole number, not 'four'"),
    ("workers: 4", "workers: 4\n  mtu: 100", "e.yaml:6: topology.mtu: must be auto or a whole number of bytes from 576 to 9000"),
    ("kind: dumbbell", "kind: dumbell", "e.yaml:4: topology.kind: 'dumbell' is not possible; did you mean 'dumbbell'?"),
    ("  kind: dumbbell\n", "", "e.yaml:3: topology.kind: missing; choose one of star, dumbbell, leafspine"),
    ("name: small", "name: a/b", "e.yaml:1: name: 'a/b' cannot name a results folder"),
    ("name: small", "name: ..", "e.yaml:1: name: '..' cannot name a results folder"),
    ("name: small", "name: 3", "e.yaml:1: name: must be text, not 3"),
    ("name: small\n", "", "e.yaml:1: name: missing"),
    ("name: small", "nmae: small", "e.yaml:1: nmae: unknown key; did you mean 'name'?"),
    ("emulated", "emulatd", "e.yaml:2: backend: 'emulatd' is not possible; did you mean 'emulated'?"),
    ("model: resnet8", "model: resnet80", "e.yaml:10: workload.model: 'resnet80' is not possible; did you mean 'resnet8'?"),
    ("model: resnet8", "model: bert", "e.yaml:10: workload.model: 'bert' is not possible; choose one of small_cnn, resnet8"),
    (", lr: 0.05", "", "e.yaml:12: workload.optimizer.lr: missing; an optimizer needs a learning rate"),
    ("lr: 0.05", "lr: fast", "e.yaml:12: workload.optimizer.lr: must be a number, not 'fast'"),
    ("lr: 0.05", "lr: .nan", "e.yaml:12: workload.optimizer.lr: must be"),
    ("{seconds: 60}", "{}", "e.yaml:13: workload.budget: a budget needs at least one of seconds, steps, accuracy"),
    ("{seconds: 60}", "{accuracy: 80}", "e.yaml:13: workload.budget.accuracy: '80' is more than the whole"),
    ("{seconds: 60}", "{seconds: 0}", "e.yaml:13: workload.budget.seconds: must be above 0"),
    ("{seconds: 60}", "{seconds: 60}\n  batch_size: true", "e.yaml:14: workload.batch_size: must be a number, not true"),
    ("[none, topk-0.1]", "[]", "e.yaml:14: schemes: must not be empty"),
    ("[none, topk-0.1]", "none", "e.yaml:14: schemes: must be a list, not 'none'"),
    ("[none, topk-0.1]", "\n- none\n- fp16\n- none", "e.yaml:17: schemes[2]: scheme 'none' is listed twice"),
    ("[none, topk-0.1]", "\n- none\n- no-such-scheme", "e.yaml:16: schemes[1]: "),
    ("[none, topk-0.1]", "[3]", "e.yaml:14: schemes[0]: must be a scheme's name or a mapping"),
    ("emulated\n", "emulated\nbackend: emulated\n", "e.yaml:3: backend: given twice; the first is on line 2"),
    ("[none, topk-0.1]\n", "[none]\nseed: yes\n", "e.yaml:15: seed: must be a number, not true"),
    ("[none, topk-0.1]\n", "[none]\nrepeats: 0\n", "e.yaml:15: repeats: must be at least 1, not 0"),
    ("[none, topk-0.1]\n", "[none]\ntransport: {ecn: 3}\n", "e.yaml:15: transport.ecn: must be true or false, not 3"),
    ("[none, topk-0.1]\n", "[none]\nhosts: {}\n", "e.yaml:15: hosts.kind: missing; choose one of process, container"),
    ("[none, topk-0.1]\n", "[none]\nconditions: {}\n", "e.yaml:15: conditions: must be a list"),
]


@pytest.mark.parametrize(("old", "new", "expected"), BAD, ids=[row[2].split(": ", 1)[1][:60] for row in BAD])
def test_each_mistake_is_told_with_its_line_and_remedy(problems, old, new, expected):
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    assert [line for line in found if line.startswith(expected)], found
    assert not [line for line in found if "Input should" in line]


BAD_SWEEPS = [
    (
        "topology.bottleneck.rte: [1mbit]",
        "e.yaml:16: sweep.topology.bottleneck.rte: unknown field; did you mean 'topology.bottleneck.rate'?",
    ),
    ("bottleneck.delay: [1ms]", "e.yaml:16: sweep.bottleneck.delay: unknown field; did you mean 'topology.bottleneck.delay'?"),
    ("topology.spines: [1]", "e.yaml:16: sweep.topology.spines: unknown field;"),
    ("zzz: [1]", "e.yaml:16: sweep.zzz: unknown field; give a dotted path, such as topology.workers, below one of backend, topology"),
    ("topology.bottleneck.rate:\n  - 1mbit\n  - 1mb", "e.yaml:18: sweep.topology.bottleneck.rate[1]: '1mb' is not a rate;"),
    ("topology.bottleneck.rate: []", "e.yaml:16: sweep.topology.bottleneck.rate: must not be empty"),
    ("topology.bottleneck.rate: 1mbit", "e.yaml:16: sweep.topology.bottleneck.rate: must be a list, not '1mbit'"),
    ("topology.bottleneck.rate: [1mbit, 1000kbit]", "e.yaml:16: sweep.topology.bottleneck.rate[1]: makes the same runs as '1mbit'"),
    ("topology.bottleneck.jitter: [1ms, 9ms]", "e.yaml:16: sweep.topology.bottleneck.jitter[1]: jitter must not exceed the delay"),
    ("workload:\n  - {kind: replay, model: vgg16, budget: {steps: 1}}", "e.yaml:17: sweep.workload[0].compute: missing; a replay needs"),
    ("workload:\n  - {kind: replay, modl: vgg16}", "e.yaml:17: sweep.workload[0].modl: unknown key; did you mean 'model'?"),
    ("workload: [3]", "e.yaml:16: sweep.workload[0]: must be a mapping"),
    ("schemes: [[none]]", "e.yaml:16: sweep.schemes: cannot be swept"),
    ("repeats: [1, 2]", "e.yaml:16: sweep.repeats: cannot be swept"),
]


@pytest.mark.parametrize(("sweep", "expected"), BAD_SWEEPS, ids=[row[0].split("\n")[0] for row in BAD_SWEEPS])
def test_swept_fields_and_values_are_checked_before_anything_starts(problems, sweep, expected):
    found = problems(GOOD + "sweep:\n  " + sweep + "\n")
    assert [line for line in found if line.startswith(expected)], found


def test_a_clash_that_only_one_cell_has_names_the_cell(problems):
    text = GOOD.replace("delay: 5ms", "delay: 5ms, jitter: 2ms") + "sweep: {topology.bottleneck.delay: [5ms, 1ms]}\n"
    assert problems(text) == [
        "e.yaml:6: topology.bottleneck.jitter: jitter must not exceed the delay it spreads around"
        " (in the cell topology.bottleneck.delay: 1ms)"
    ]


def test_a_field_inside_a_swept_mapping_may_be_swept_too(write):
    text = dedent("""\
        sweep:
          workload.batch_size: [8, 16]
          workload:
          - {kind: replay, model: vgg16, compute: 1ms, budget: {steps: 1}}
          - {kind: replay, model: resnet50, compute: 1ms, budget: {steps: 1}}
        """)
    made = [(variant.workload.batch_size, variant.workload.model) for _, variant in variants(load(write(GOOD + text)))]
    assert made == [(8, "vgg16"), (8, "resnet50"), (16, "vgg16"), (16, "resnet50")]


def test_a_swept_field_need_not_be_given_outside_the_sweep(write):
    text = GOOD.replace("rate: 40mbit, ", "") + "sweep: {topology.bottleneck.rate: [10mbit, 20mbit]}\n"
    assert [v.topology.bottleneck.rate_bps for _, v in variants(load(write(text)))] == [10e6, 20e6]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file(problems):
    text = GOOD.replace("emulated", "emulatd").replace("workers: 4", "workers: 1").replace("40mbit", "40mb").replace("seconds", "secs")
    found = problems(text + "sweep:\n  seeed: [1]\n")
    assert [line.split(": ")[1] for line in found] == [
        "backend",
        "topology.workers",
        "topology.bottleneck.rate",
        "workload.budget.secs",
        "sweep.seeed",
    ]


def test_a_bad_scheme_alone_is_one_problem(problems):
    assert len(problems(GOOD.replace("[none, topk-0.1]", "[no-such-scheme]"))) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "e.yaml:1: the file is empty"),
        ("# only a comment\n", "e.yaml:1: the file is empty"),
        ("- a\n- b\n", "e.yaml:1: an experiment must be a mapping"),
        ("just words\n", "e.yaml:1: an experiment must be a mapping"),
        ("name: a\nbackend: [emulated\n", "e.yaml:3: not valid YAML: "),
        ("name: a\n\tbackend: b\n", "e.yaml:2: not valid YAML: "),
        ("name: a\n---\nname: b\n", "e.yaml:2: not valid YAML: "),
        ("name: !python/object:os.system x\n", "e.yaml:1: not valid YAML: "),
        ("name: a\x00b\n", "e.yaml:1: not valid YAML: "),
        ("name: &a [*a]\n", "e.yaml:1: name[0]: refers to itself"),
        ("? [a, b]\n: c\n", "e.yaml:1: a key must be plain text"),
        ("seed: 2024-99-99\n", "e.yaml:1: not valid YAML: "),
    ],
)
def test_what_is_not_an_experiment_at_all_is_told_in_a_sentence(problems, text, expected):
    assert problems(text)[0].startswith(expected)


def test_a_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path):
    with pytest.raises(SpecError, match=r"none\.yaml: cannot be read: no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match=r"cannot be read: is a directory"):
        load(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match=r"cannot be read: it is not UTF-8"):
        load(tmp_path / "binary.yaml")


def test_yaml_anchors_and_merge_keys_work_and_may_be_overridden(write):
    text = GOOD.replace("bottleneck: {", "bottleneck: &link {").replace("access: {rate: 100mbit}", "access: {<<: *link, rate: 100mbit}")
    assert load(write(text)).topology.access.forward == LinkSpec(100e6, 0.005)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("emulated", "simulated", "backend: simulated is not supported yet"),
        ("emulated", "emulated\nsweep: {backend: [emulated, simulated]}", "backend: simulated is not supported yet"),
    ],
)
def test_what_is_valid_but_not_supported_yet_is_refused_with_a_sentence(write, old, new, sentence):
    sentences = unsupported(load(write(GOOD.replace(old, new))))
    assert len(sentences) == 1
    assert sentence in sentences[0]


def test_the_scheme_registry_can_be_replaced(write):
    class Scheme:
        slug = "mine"

    assert load(write(GOOD.replace("[none, topk-0.1]", "[whatever]")), resolve=lambda entry: Scheme).schemes == ("whatever",)
