"""Keep the books of one switch: what it holds, and what must be added and deleted to get it to hold something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.flows import Flow, Group, Match


@dataclass(frozen=True)
class Change:
    """What to tell a switch, in this order: nothing is deleted before what replaces it is there."""

    new_groups: tuple[Group, ...] = ()
    changed_groups: tuple[Group, ...] = ()
    flows: tuple[Flow, ...] = ()  # new, or replacing the one with the same match
    obsolete_flows: tuple[Match, ...] = ()
    obsolete_groups: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return any((self.new_groups, self.changed_groups, self.flows, self.obsolete_flows, self.obsolete_groups))


class Table:
    """One switch's flows and groups, as far as it was told."""

    def __init__(self) -> None:
        """Begin with a switch of which nothing is known."""
        self._flows: dict[Match, Flow] = {}
        self._groups: dict[int, Group | None] = {}  # None: it is there, but not known what it does
        self._doubtful: dict[Match, None] = {}  # perhaps still there: deleted, but not acknowledged, or told before the connection broke

    def doubt(self, groups_found: Iterable[int]) -> None:
        """Note that the switch has connected anew: it holds these groups, and of its flows any or none."""
        self._doubtful |= dict.fromkeys(self._flows)
        self._flows = {}
        self._groups = dict.fromkeys(groups_found)

    def change_to(self, flows: Iterable[Flow]) -> Change:
        """Return what turns the present content into these flows, and take it for told."""
        wanted = {flow.match: flow for flow in flows}
        groups = _groups(wanted.values())
        change = Change(
            new_groups=tuple(group for number, group in groups.items() if number not in self._groups),
            changed_groups=tuple(group for number, group in groups.items() if number in self._groups and self._groups[number] != group),
            flows=tuple(flow for match, flow in wanted.items() if self._flows.get(match) != flow),
            obsolete_flows=tuple(match for match in self._doubtful | dict.fromkeys(self._flows) if match not in wanted),
            obsolete_groups=tuple(number for number in self._groups if number not in groups),
        )
        self._flows = wanted
        self._groups = dict(groups)
        self._doubtful = dict.fromkeys(change.obsolete_flows)
        return change

    def acknowledge(self) -> None:
        """Note that the switch has done all it was told."""
        self._doubtful = {}


def _groups(flows: Iterable[Flow]) -> dict[int, Group]:
    groups: dict[int, Group] = {}
    for flow in flows:
        if isinstance(flow.action, Group) and groups.setdefault(flow.action.number, flow.action) != flow.action:
            raise ValueError(f"two groups have the number {flow.action.number}: {groups[flow.action.number]} and {flow.action}")
    return groups
