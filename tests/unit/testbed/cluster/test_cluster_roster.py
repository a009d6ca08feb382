"""Which machines can work together, and which ranks' bytes can be told apart."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from crews import machines

from testbed.cluster.roster import Machine, alone, refusals


def test_machines_that_are_alike_are_not_refused():
    assert refusals(machines(3)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"problems": ("no data",)}, "rank 1 on node2: no data"),
        (
            {"versions": {"torch": "2.12.0", "numpy": "2.4"}},
            "rank 1 on node2 has torch 2.12.0 and rank 0 on node1 has 2.13.0: pip install the same torch on all machines",
        ),
        ({"git_commit": "def"}, "rank 1 on node2 has testbed def and rank 0 on node1 has abc: check out the same commit on all machines"),
        (
            {"interface": "lo", "address": "127.0.0.1"},
            "rank 1 on node2: other machines do not reach its interface lo (127.0.0.1): name another with --interface",
        ),
    ],
)
def test_what_keeps_a_rank_from_taking_part_is_told_with_its_machine_and_the_remedy(change, sentence):
    first, second, third = machines(3)
    assert refusals([first, replace(second, **change), third]) == [sentence]


def test_ranks_of_one_machine_may_meet_on_its_loopback():
    here = replace(machines(1)[0], interface="lo", address="127.0.0.1")
    assert refusals([here, here]) == []


def test_bytes_are_counted_only_where_no_other_rank_sends_by_the_same_interface():
    first, second, third = machines(3)
    assert alone([first, second, third]) == [0, 1, 2]
    assert alone([first, second, replace(third, host="node1")]) == [1]
    assert alone([first, second, replace(third, host="node1", interface="eth1")]) == [0, 1, 2]


def test_a_machine_crosses_the_store_as_json():
    one = replace(machines(1)[0], problems=("no data",))
    assert Machine.from_json(json.loads(json.dumps(asdict(one)))) == one
    assert "problems" not in one.to_json()
