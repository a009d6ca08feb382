"""The cables of an emulated network, as Mininet makes them."""

from __future__ import annotations

from typing import Any

from mininet.link import Link as MininetLink

from testbed.emulation.shaping import tool
from topologies import Link as LinkDescription


class Veth(MininetLink):
    """A cable: one veth pair, or two whose inner ends stay in the sandbox's own network, for a delay element to join."""

    def __init__(self, node1: Any, node2: Any, description: LinkDescription, inner: tuple[str, str] | None = None, **params: Any) -> None:
        self._inner = inner
        super().__init__(node1, node2, **params)

    def makeIntfPair(  # type: ignore[override]
        self, name1: str, name2: str, addr1: Any = None, addr2: Any = None, node1: Any = None, node2: Any = None, deleteIntfs: bool = True
    ) -> None:
        """Make the interfaces at once in the namespaces where they belong."""
        if self._inner is None:
            _veth(name1, node1, name2, node2)
        else:
            _veth(name1, node1, self._inner[0], None)
            _veth(name2, node2, self._inner[1], None)


def _veth(name1: str, node1: Any, name2: str, node2: Any) -> None:
    place1 = ["netns", str(node1.pid)] if node1 is not None and node1.inNamespace else []
    place2 = ["netns", str(node2.pid)] if node2 is not None and node2.inNamespace else []
    tool("ip", "link", "add", "name", name1, *place1, "type", "veth", "peer", "name", name2, *place2)
