"""Keep the books of one switch: what it holds, and what must be added and deleted to get it to hold something else.

At once (`change_to`), or in steps that lose no frame: `prepare`, then `add` what is new, a part at a time; when all switches have all of
it, `retire` what is not wanted any more, and when no frame is under way any more that needs it, `sweep` it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

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


class Wire(Protocol):
    """The way to one switch."""

    def tell(self, change: Change, takes_over: bool) -> int:
        """Send a change; return the number by which the switch will acknowledge it."""
        ...


class Table:
    """One switch's flows and groups, as far as it was told."""

    def __init__(self) -> None:
        """Begin with a switch of which nothing is known."""
        self._flows: dict[Match, Flow] = {}
        self._groups: dict[int, Group | None] = {}  # None: it is there, but not known what it does
        self._doubtful: dict[Match, None] = {}  # perhaps still there: deleted, but not acknowledged, or told before the connection broke
        self._retired: dict[Match, int] = {}  # still there, but not wanted any more, since the update of this number

    def doubt(self, groups_found: Iterable[int]) -> None:
        """Note that the switch has connected anew: it holds these groups, and of its flows any or none."""
        self._doubtful |= dict.fromkeys(self._flows)
        self._flows = {}
        self._retired = {}
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
        self._retired = {}
        return change

    def prepare(self, flows: Iterable[Flow]) -> None:
        """Get ready for an update to these flows: what is there of them stays."""
        wanted = {flow.match: flow for flow in flows}
        _groups(wanted.values())
        self._retired = {match: number for match, number in self._retired.items() if match not in wanted}

    def add(self, flows: Iterable[Flow]) -> Change:
        """Return what puts these flows in force and touches no others, and take it for told.

        What applies to the same frames by another priority gives way at once: it would hide the new flow, or be hidden by it.
        """
        added = {flow.match: flow for flow in flows if self._flows.get(flow.match) != flow}
        groups = _groups(added.values())
        frames = {_frames(match) for match in added}
        change = Change(
            new_groups=tuple(group for number, group in groups.items() if number not in self._groups),
            changed_groups=tuple(group for number, group in groups.items() if number in self._groups and self._groups[number] != group),
            flows=tuple(added.values()),
            obsolete_flows=tuple(match for match in self._flows if match not in added and _frames(match) in frames) if added else (),
        )
        self._groups |= groups
        self._flows |= added
        self._forget(change.obsolete_flows)
        return change

    def retire(self, flows: Iterable[Flow], update: int) -> bool:
        """Note that from this update on only these flows are wanted; tell whether there is anything else."""
        wanted = {flow.match for flow in flows}
        self._retired = {match: self._retired.get(match, update) for match in self._flows if match not in wanted}
        return bool(self._retired or self._unused_groups())

    def sweep(self, update: int) -> Change:
        """Return what deletes everything that was retired by this update or an earlier one, and take it for told."""
        obsolete = tuple(match for match, retired in self._retired.items() if retired <= update)
        self._forget(obsolete)
        change = Change(obsolete_flows=obsolete, obsolete_groups=self._unused_groups())
        for number in change.obsolete_groups:
            del self._groups[number]
        return change

    def acknowledge(self) -> None:
        """Note that the switch has done all it was told."""
        self._doubtful = {}

    def _forget(self, deleted: Iterable[Match]) -> None:
        for match in deleted:
            del self._flows[match]
            self._retired.pop(match, None)
            self._doubtful[match] = None

    def _unused_groups(self) -> tuple[int, ...]:
        used = _groups(self._flows.values())
        return tuple(number for number in self._groups if number not in used)


def _frames(match: Match) -> tuple[object, ...]:
    """Return what tells the frames that a flow applies to, whatever its priority."""
    return match.in_port, match.eth_src, match.eth_dst, match.tcp_only, match.arp_target


def _groups(flows: Iterable[Flow]) -> dict[int, Group]:
    groups: dict[int, Group] = {}
    for flow in flows:
        if isinstance(flow.action, Group) and groups.setdefault(flow.action.number, flow.action) != flow.action:
            raise ValueError(f"two groups have the number {flow.action.number}: {groups[flow.action.number]} and {flow.action}")
    return groups
