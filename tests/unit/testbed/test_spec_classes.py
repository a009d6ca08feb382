"""Classes of traffic in an experiment file: what queues they make in either direction, and what cannot be."""

from __future__ import annotations

import json

import pytest

from testbed.spec import load, resolved, variants
from topologies import LinkSpec, QueueClass

TRAINING = "{name: training, min: 24mbit}"
BULK = "{name: bulk, min: 8mbit, max: 20mbit, port: 5201}"
GOOD = f"""\
name: shared
topology:
  kind: dumbbell
  workers: 4
  bottleneck:
    rate: 40mbit
    classes:
    - {TRAINING}
    - {BULK}
  access: {{rate: 100mbit}}
workload: {{kind: replay, model: vgg16, compute: 60ms, budget: {{steps: 5}}}}
schemes: [none]
"""
CLASSES = "topology.bottleneck.classes"


def bottleneck(experiment):
    link = experiment.topology.network().links[0]
    assert link.name == "bottleneck"
    return link


def test_a_class_may_take_all_of_the_link_unless_it_is_told_less(write):
    link = bottleneck(load(write(GOOD)))
    training, bulk = QueueClass("training", 24e6, 40e6), QueueClass("bulk", 8e6, 20e6, port=5201)
    assert link.forward == link.backward == LinkSpec(40e6, classes=(training, bulk))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("dscp: 0", QueueClass("bulk", 8e6, 20e6, dscp=0)),
        ("dscp: 63", QueueClass("bulk", 8e6, 20e6, dscp=63)),
        ("port: 1", QueueClass("bulk", 8e6, 20e6, port=1)),
        ("port: 65535", QueueClass("bulk", 8e6, 20e6, port=65535)),
        ("hosts: [h4, h1]", QueueClass("bulk", 8e6, 20e6, hosts=("h4", "h1"))),
        ("dscp: 8, queue: 30kB", QueueClass("bulk", 8e6, 20e6, queue_bytes=30_000, dscp=8)),
        ("dscp: 8, queue: 1514B", QueueClass("bulk", 8e6, 20e6, queue_bytes=1514, dscp=8)),
    ],
)
def test_packets_belong_to_a_class_by_mark_port_or_host(write, given, expected):
    assert bottleneck(load(write(GOOD.replace("port: 5201", given)))).forward.classes[1] == expected


def test_in_a_slower_opposite_direction_a_class_may_take_all_of_that(write):
    text = GOOD.replace("    rate: 40mbit\n", "    rate: 40mbit\n    reverse: {rate: 32mbit, queue: 90kB}\n")
    link = bottleneck(load(write(text)))
    assert [one.max_bps for one in link.forward.classes] == [40e6, 20e6]
    assert [(one.min_bps, one.max_bps) for one in link.backward.classes] == [(24e6, 32e6), (8e6, 20e6)]
    assert (link.forward.queue_bytes, link.backward.queue_bytes) == (None, 90_000)


def test_classes_may_be_promised_all_of_the_link_and_no_more(write, problems):
    assert load(write(GOOD.replace("min: 8mbit", "min: 16mbit")))
    assert problems(GOOD.replace("min: 8mbit", "min: 17mbit")) == [
        f"e.yaml:7: {CLASSES}: the classes are promised 41mbit, and the link has 40mbit"
    ]


def test_the_slower_direction_limits_what_may_be_promised(problems):
    for rates in ("40mbit\n    reverse: {rate: 30mbit}", "30mbit\n    reverse: {rate: 40mbit}"):
        assert problems(GOOD.replace("40mbit", rates, 1)) == [
            f"e.yaml:8: {CLASSES}: the classes are promised 32mbit, and the link has 30mbit",
        ]


def test_without_a_rate_of_its_own_the_opposite_direction_has_the_links(problems):
    text = GOOD.replace("40mbit", "40mbit\n    reverse: {delay: 1ms}", 1)
    assert problems(text.replace("min: 8mbit", "min: 17mbit")) == [
        f"e.yaml:8: {CLASSES}: the classes are promised 41mbit, and the link has 40mbit"
    ]


FIRST = "the first class takes what no other claims: give it no dscp, port or hosts"
CLAIM = "say what belongs to this class by dscp, port or hosts"
# Each row: text to replace in GOOD, by what, and all lines of the error.
BAD = [
    (f"    - {BULK}\n", "", [f"7: {CLASSES}: one class is no choice: leave `classes` out, or give two or more"]),
    ("name: bulk", "name: training", [f"9: {CLASSES}[1].name: class 'training' is there twice"]),
    ("min: 24mbit", "min: 24mbit, port: 1", [f"8: {CLASSES}[0]: {FIRST}"]),
    ("min: 24mbit", "min: 24mbit, dscp: 0", [f"8: {CLASSES}[0]: {FIRST}"]),
    ("24mbit", "24mbit, hosts: [h1]", [f"8: {CLASSES}[0]: {FIRST}"]),
    (", port: 5201", "", [f"9: {CLASSES}[1]: {CLAIM}"]),
    ("port: 5201", "hosts: []", [f"9: {CLASSES}[1]: {CLAIM}"]),
    ("max: 20mbit", "max: 7mbit", [f"9: {CLASSES}[1]: needs min <= max <= the link's rate of 40mbit, in both directions"]),
    ("max: 20mbit", "max: 41mbit", [f"9: {CLASSES}[1]: needs min <= max <= the link's rate of 40mbit, in both directions"]),
    (
        "rate: 40mbit\n",
        "rate: 40mbit\n    reverse: {rate: 20mbit}\n",
        [
            f"8: {CLASSES}: the classes are promised 32mbit, and the link has 20mbit",
            f"9: {CLASSES}[0]: needs min <= max <= the link's rate of 20mbit, in both directions",
        ],
    ),
    ("port: 5201", "hosts: [h9, h1, h10]", [f"9: {CLASSES}[1].hosts: this network has no host h10, h9"]),
    ("port: 5201", "hosts: [t1]", [f"9: {CLASSES}[1].hosts: this network has no host t1"]),
    ("port: 5201", "hosts: [s1]", [f"9: {CLASSES}[1].hosts: this network has no host s1"]),
    ("port: 5201", "hosts: h1", [f"9: {CLASSES}[1].hosts: must be a list, not 'h1'"]),
    ("port: 5201", "port: 0", [f"9: {CLASSES}[1].port: must be at least 1, not 0"]),
    ("port: 5201", "port: 65536", [f"9: {CLASSES}[1].port: must be at most 65535, not 65536"]),
    ("port: 5201", "port: true", [f"9: {CLASSES}[1].port: must be a number, not true"]),
    ("port: 5201", "dscp: -1", [f"9: {CLASSES}[1].dscp: must be at least 0, not -1"]),
    ("port: 5201", "dscp: 64", [f"9: {CLASSES}[1].dscp: must be at most 63, not 64"]),
    ("port: 5201", "port: 1, queue: 1513B", [f"9: {CLASSES}[1].queue: 1513B cannot hold one frame (1514 bytes at MTU 1500)"]),
    ("port: 5201", "port: 1, queue: 0B", [f"9: {CLASSES}[1].queue: must be above 0, not '0B'"]),
    ("min: 8mbit", "min: 1bit", [f"9: {CLASSES}[1].min: must be at least 12kbit: no queue can be held to less"]),
    ("min: 8mbit", "min: 0mbit", [f"9: {CLASSES}[1].min: must be above 0, not '0mbit'"]),
    ("min: 8mbit, ", "", [f"9: {CLASSES}[1].min: missing; a class needs the rate it is sure of, such as min: 8mbit"]),
    ("name: bulk, ", "", [f"9: {CLASSES}[1].name: missing"]),
    ("name: bulk", "name: a/b", [f"9: {CLASSES}[1].name: 'a/b' has characters that do not belong here"]),
    ("name: bulk", "name: _b", [f"9: {CLASSES}[1].name: '_b' has characters that do not belong here"]),
    ("name: bulk", "name: 3", [f"9: {CLASSES}[1].name: must be text, not 3; put it in quotes"]),
    ("port: 5201", "prt: 5201", [f"9: {CLASSES}[1].prt: unknown key; did you mean 'port'?"]),
    (f"- {BULK}", "- bulk", [f"9: {CLASSES}[1]: must be a mapping of `key: value`, not 'bulk'"]),
]


@pytest.mark.parametrize(("old", "new", "expected"), BAD, ids=[f"{row[0][:20]} {row[1][:40]}".strip() for row in BAD])
def test_each_mistake_is_told_with_its_line_and_remedy(problems, old, new, expected):
    assert old in GOOD
    assert problems(GOOD.replace(old, new, 1)) == [f"e.yaml:{line}" for line in expected]


@pytest.mark.parametrize(
    ("first", "second", "faults"),
    [
        ("dscp: 3", "dscp: 3, port: 1", ["dscp: dscp 3"]),
        ("port: 80", "port: 80", ["port: port 80"]),
        ("hosts: [h1]", "dscp: 3, hosts: [h1, h2]", ["hosts: host h1"]),
        (
            "dscp: 0, port: 1, hosts: [h2, h1]",
            "dscp: 0, port: 1, hosts: [h1, h2]",
            ["dscp: dscp 0", "port: port 1", "hosts: host h1", "hosts: host h2"],
        ),
        ("dscp: 3, hosts: [h1]", "port: 3, hosts: [h2]", []),
    ],
)
def test_nothing_belongs_to_two_classes(write, problems, first, second, faults):
    text = GOOD.replace("port: 5201}", f"{first}}}\n    - {{name: other, min: 1mbit, {second}}}")
    if faults:
        assert problems(text) == [f"e.yaml:10: {CLASSES}[2].{fault} belongs to class 'bulk' already" for fault in faults]
    else:
        assert load(write(text))


def test_a_link_needs_a_rate_that_a_queue_can_be_held_to(write, problems):
    assert load(write(GOOD.replace("{rate: 100mbit}", "{rate: 12kbit, reverse: {rate: 12kbit}}")))
    wrong = "must be at least 12kbit: no queue can be held to less"
    assert problems(GOOD.replace("{rate: 100mbit}", "{rate: 11kbit}")) == [f"e.yaml:10: topology.access.rate: {wrong}"]
    text = GOOD.replace("{rate: 100mbit}", "{rate: 100mbit, reverse: {rate: 11kbit}}")
    assert problems(text) == [f"e.yaml:10: topology.access.reverse.rate: {wrong}"]


def test_all_mistakes_of_all_links_are_told_at_once(problems):
    access = "{rate: 10mbit, classes: [{name: a, min: 1mbit}, {name: b, min: 1mbit, hosts: [x], queue: 1kB}]}"
    text = GOOD.replace("port: 5201", "hosts: [y], queue: 1kB").replace("{rate: 100mbit}", access)
    assert [line.partition(" cannot")[0] for line in problems(text)] == [
        "e.yaml:9: topology.bottleneck.classes[1].queue: 1kB",
        "e.yaml:9: topology.bottleneck.classes[1].hosts: this network has no host y",
        "e.yaml:10: topology.access.classes[1].queue: 1kB",
        "e.yaml:10: topology.access.classes[1].hosts: this network has no host x",
    ]


def test_a_class_needs_room_for_a_large_frame_where_frames_are_large(problems):
    text = GOOD.replace("40mbit", "60mbit", 1).replace("port: 5201", "port: 5201, queue: 9kB")
    assert problems(text) == [f"e.yaml:9: {CLASSES}[1].queue: 9kB cannot hold one frame (9014 bytes at MTU 9000)"]


def test_a_rate_that_is_too_small_for_the_classes_in_one_cell_names_the_cell(problems):
    assert problems(GOOD + "sweep: {topology.bottleneck.rate: [40mbit, 30mbit]}\n") == [
        f"e.yaml:7: {CLASSES}: the classes are promised 32mbit, and the link has 30mbit (in the cell topology.bottleneck.rate: 30mbit)"
    ]


def test_classes_are_the_same_in_every_cell_but_for_a_most_that_is_all_of_the_link(write):
    experiment = load(write(GOOD + "sweep: {topology.bottleneck.rate: [40mbit, 80mbit]}\n"))
    slow, fast = (bottleneck(variant).forward.classes for _, variant in variants(experiment))
    assert slow == (QueueClass("training", 24e6, 40e6), QueueClass("bulk", 8e6, 20e6, port=5201))
    assert fast == (QueueClass("training", 24e6, 80e6), QueueClass("bulk", 8e6, 20e6, port=5201))


def test_the_manifest_tells_the_classes_of_either_direction(write):
    text = GOOD.replace("port: 5201", "hosts: [h1], dscp: 8").replace("40mbit", "40mbit\n    reverse: {rate: 36mbit}", 1)
    spec = resolved(load(write(text)))
    assert json.loads(json.dumps(spec)) == spec
    link = spec["topology"]["bottleneck"]
    assert [link[way]["classes"][0]["max_bps"] for way in ("forward", "backward")] == [40e6, 36e6]
    assert link["forward"]["classes"][1] == {
        "name": "bulk",
        "min_bps": 8e6,
        "max_bps": 20e6,
        "queue_bytes": None,
        "dscp": 8,
        "port": None,
        "hosts": ["h1"],
    }
    assert spec["topology"]["access"]["forward"]["classes"] == []
