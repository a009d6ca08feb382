"""The books of one switch: the least is told that makes it hold what is wanted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.flows import Flow, Group, Match, Output
from controller.installation import Change, Table


def to(port: int, target: int = 1) -> Flow:
    return Flow(Match(100, eth_dst=f"02:00:00:00:00:{target:02x}"), Output(port))


def by(group: Group, target: int = 1) -> Flow:
    return Flow(Match(200, eth_dst=f"02:00:00:00:00:{target:02x}", tcp_only=True), group)


def test_an_empty_switch_is_told_everything():
    group = Group(7, (1, 2))
    assert Table().change_to([to(1), by(group)]) == Change(new_groups=(group,), flows=(to(1), by(group)))


def test_what_is_there_is_not_told_again():
    table = Table()
    table.change_to([to(1), to(2, target=2)])
    assert not table.change_to([to(2, target=2), to(1)])


def test_a_flow_that_leads_elsewhere_is_replaced_and_not_deleted():
    table = Table()
    table.change_to([to(1)])
    assert table.change_to([to(2)]) == Change(flows=(to(2),))


def test_a_flow_that_is_not_wanted_is_deleted():
    table = Table()
    table.change_to([to(1), to(1, target=2)])
    assert table.change_to([to(1)]) == Change(obsolete_flows=(to(1, target=2).match,))


def test_a_group_that_lost_a_member_gives_way_to_another():
    table = Table()
    table.change_to([by(Group(7, (1, 2)))])
    change = table.change_to([by(Group(8, (1, 3)))])
    assert change == Change(new_groups=(Group(8, (1, 3)),), flows=(by(Group(8, (1, 3))),), obsolete_groups=(7,))


def test_a_deletion_is_repeated_until_it_is_acknowledged():
    table = Table()
    table.change_to([to(1), to(1, target=2)])
    gone = to(1, target=2).match
    assert table.change_to([to(1)]).obsolete_flows == (gone,)
    assert table.change_to([to(1)]).obsolete_flows == (gone,)
    table.acknowledge()
    assert not table.change_to([to(1)])


def test_a_flow_that_is_wanted_again_before_its_deletion_is_acknowledged_is_told_again():
    table = Table()
    table.change_to([to(1)])
    table.change_to([])
    assert table.change_to([to(1)]) == Change(flows=(to(1),))


def test_a_switch_that_comes_back_is_told_everything_and_loses_what_is_not_wanted_any_more():
    table = Table()
    table.change_to([to(1), to(1, target=2), by(Group(7, (1, 2)))])
    table.doubt([7, 9])
    change = table.change_to([to(1), by(Group(7, (1, 2)))])
    assert change.flows == (to(1), by(Group(7, (1, 2))))
    assert change.obsolete_flows == (to(1, target=2).match,)
    assert (change.new_groups, change.changed_groups, change.obsolete_groups) == ((), (Group(7, (1, 2)),), (9,))


def updated(table: Table, flows: list[Flow], number: int) -> bool:
    table.prepare(flows)
    table.add(flows)
    return table.retire(flows, number)


def test_an_update_deletes_nothing_until_it_is_swept():
    table = Table()
    table.change_to([to(1), to(1, target=2)])
    table.prepare([to(2), to(1, target=3)])
    assert table.add([to(2)]) == Change(flows=(to(2),))
    assert table.add([to(1, target=3)]) == Change(flows=(to(1, target=3),))
    assert table.retire([to(2), to(1, target=3)], 1)
    assert table.sweep(1) == Change(obsolete_flows=(to(1, target=2).match,))
    assert not table.sweep(1)


def test_an_update_that_changes_nothing_tells_and_retires_nothing():
    table = Table()
    table.change_to([to(1), by(Group(7, (1, 2)))])
    assert not table.add([to(1), by(Group(7, (1, 2)))])
    assert not table.retire([to(1), by(Group(7, (1, 2)))], 1)


@pytest.mark.parametrize(("before", "after"), [(300, 100), (100, 300)])
def test_a_flow_for_the_same_frames_by_another_priority_gives_way_at_once(before, after):
    old, new = (Flow(Match(priority, in_port=1, eth_src="a", eth_dst="b"), Output(2)) for priority in (before, after))
    table = Table()
    table.change_to([old])
    assert table.add([new]) == Change(flows=(new,), obsolete_flows=(old.match,))
    assert not table.retire([new], 1)


def test_what_is_wanted_again_is_not_swept_and_what_was_retired_since_is_not_either():
    table = Table()
    table.change_to([to(1), to(1, target=2), to(1, target=3)])
    updated(table, [to(1)], 1)
    table.prepare([to(1, target=2)])
    assert table.sweep(1).obsolete_flows == (to(1, target=3).match,)
    assert not table.add([to(1, target=2)])
    assert table.retire([to(1, target=2)], 2)
    assert not table.sweep(1)
    assert table.sweep(2).obsolete_flows == (to(1).match,)


def test_a_group_is_swept_when_no_flow_leads_to_it_any_more():
    table = Table()
    table.change_to([by(Group(7, (1, 2)))])
    new = by(Group(8, (1, 3)))
    table.prepare([new])
    assert table.add([new]) == Change(new_groups=(Group(8, (1, 3)),), flows=(new,))
    assert table.retire([new], 1)
    assert table.sweep(1) == Change(obsolete_groups=(7,))


def test_two_groups_of_one_number_are_refused():
    for take in (Table().change_to, Table().prepare):
        with pytest.raises(ValueError, match="two groups have the number 7"):
            take([by(Group(7, (1, 2))), by(Group(7, (1, 3)), target=2)])


class Switch:
    """Does what it is told, or loses it."""

    def __init__(self) -> None:
        self.flows: dict[Match, Flow] = {}
        self.groups: dict[int, Group] = {}

    def obey(self, change: Change) -> None:
        for group in change.new_groups:
            assert group.number not in self.groups
            self.groups[group.number] = group
        for group in change.changed_groups:
            assert group.number in self.groups
            self.groups[group.number] = group
        self.flows |= {flow.match: flow for flow in change.flows}
        for match in change.obsolete_flows:
            self.flows.pop(match, None)
        for number in change.obsolete_groups:
            del self.groups[number]
        assert all(flow.action.number in self.groups for flow in self.flows.values() if isinstance(flow.action, Group))


GROUPS = st.sampled_from([Group(7, (1, 2)), Group(8, (1, 3)), Group(9, (1, 2, 3))])
FLOWS = st.lists(st.one_of(st.builds(to, st.integers(1, 3), st.integers(1, 4)), st.builds(by, GROUPS, st.integers(1, 4))))


def in_steps(table: Table, flows: list[Flow], number: int):
    """Yield the changes of an update that is told in two parts and swept."""
    wanted = list({flow.match: flow for flow in flows}.values())
    table.prepare(wanted)
    yield table.add(wanted[::2])
    yield table.add(wanted[1::2])
    table.retire(wanted, number)
    yield table.sweep(number)


@given(st.lists(st.tuples(FLOWS, st.booleans(), st.sampled_from(["done", "acknowledged", "lost"]))), FLOWS)
def test_whatever_was_lost_on_the_way_a_switch_that_comes_back_ends_with_what_is_wanted(history, wanted):
    table, switch = Table(), Switch()
    lost = False
    for number, (flows, at_once, fate) in enumerate(history):
        for change in [table.change_to(flows)] if at_once else in_steps(table, flows, number):
            lost = lost or fate == "lost"  # what follows a lost message is lost too: the connection is broken
            if not lost:
                switch.obey(change)
            if not lost and fate == "acknowledged":
                table.acknowledge()
        if not lost:
            assert switch.flows == {flow.match: flow for flow in flows}
    table.doubt(switch.groups)
    switch.obey(table.change_to(wanted))
    last = {flow.match: flow for flow in wanted}
    assert switch.flows == last
    assert set(switch.groups) == {flow.action.number for flow in last.values() if isinstance(flow.action, Group)}
