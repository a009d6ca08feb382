"""Hosts of an emulated network that are there before it is, such as containers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mininet.node import Host

from testbed.emulation.namespaces import joined


@dataclass(frozen=True)
class Place:
    """Where a host is."""

    namespace: int  # a descriptor of its network namespace, which has no interface yet but its loopback
    entry: tuple[str, ...]  # what stands before a command that is to run in it: the command is then found in its file system


class PlacedHost(Host):
    """A Mininet host whose network namespace is that of a place, instead of one of its own."""

    def __init__(self, name: str, place: Place, **params: Any) -> None:
        self._place = place
        super().__init__(name, **params)

    def startShell(self, mnexecOpts: str | None = None) -> None:
        """Start its shell in the place; Mininet knows the namespace by the shell's process."""
        self.inNamespace = False  # no new one
        with joined(self._place.namespace):
            super().startShell(mnexecOpts)
        self.inNamespace = True
