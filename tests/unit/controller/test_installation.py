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


def test_two_groups_of_one_number_are_refused():
    with pytest.raises(ValueError, match="two groups have the number 7"):
        Table().change_to([by(Group(7, (1, 2))), by(Group(7, (1, 3)), target=2)])


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


@given(st.lists(st.tuples(FLOWS, st.sampled_from(["done", "acknowledged", "lost"]))), FLOWS)
def test_whatever_was_lost_on_the_way_a_switch_that_comes_back_ends_with_what_is_wanted(history, wanted):
    table, switch = Table(), Switch()
    lost = False
    for flows, fate in history:
        change = table.change_to(flows)
        lost = lost or fate == "lost"  # what follows a lost message is lost too: the connection is broken
        if not lost:
            switch.obey(change)
        if not lost and fate == "acknowledged":
            table.acknowledge()
    table.doubt(switch.groups)
    switch.obey(table.change_to(wanted))
    last = {flow.match: flow for flow in wanted}
    assert switch.flows == last
    assert set(switch.groups) == {flow.action.number for flow in last.values() if isinstance(flow.action, Group)}
