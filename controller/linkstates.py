"""Which links are down, told by the states of the switches' ports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from topologies import Network


class LinkStates:
    """A link is up while no switch reports its port on it down; of a host's end only the switch's side is known."""

    def __init__(self, network: Network) -> None:
        """Begin with every link up."""
        self._names = {ends: link.name for link in network.links for ends in ((link.a, link.b), (link.b, link.a))}
        self._down_ports: dict[str, set[str]] = {link.name: set() for link in network.links}  # by link: the switches that report it

    @property
    def down(self) -> frozenset[str]:
        """Return the names of the links that are down."""
        return frozenset(name for name, switches in self._down_ports.items() if switches)

    def down_along(self, path: Sequence[str]) -> list[str]:
        """Return the names of the links along a path that are down."""
        return [name for name in (self._names[ends] for ends in pairwise(path)) if self._down_ports[name]]

    def set_port(self, switch: str, neighbour: str, up: bool) -> str | None:
        """Note the state of a port; return the name of the link if that took it down or up."""
        link = self._names[switch, neighbour]
        switches = self._down_ports[link]
        was_up = not switches
        if up:
            switches.discard(switch)
        else:
            switches.add(switch)
        return link if was_up != (not switches) else None
