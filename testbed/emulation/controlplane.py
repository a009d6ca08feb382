"""The run's SDN controller as the emulation sees it: a process that is started, told the network, listened to and, if it dies, replaced.

Switches are fail-secure and keep their rules, so that forwarding goes on while no controller is there.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controller.routing import RoutingPolicy
from testbed.emulation.child import Child, ChildEnded, JsonLines, Message
from testbed.emulation.shaping import tool
from topologies import Network

LISTEN_PORT = 6653
INSTALL_TIMEOUT_S = 30.0
PIN_TIMEOUT_S = 2.0
MOST_ASKED = 8  # pins that wait for an answer
SILENT_S = 10.0
MOST_RESTARTS = 5  # within a run; a controller that dies again and again is a fault


class ControlPlane:
    """The controller of one emulated network."""

    def __init__(self, log: Path) -> None:
        """Start the process; it imports what it needs while the network boots."""
        self._log = log
        self._child = Child("controller", log)
        self._job: dict[str, Any] = {}
        self._heard: list[Message] = []
        self._heard_at: float | None = None
        self._asked: dict[int, list[str]] = {}  # pins that were not answered yet
        self.paths: list[list[str]] = []
        self.installation_s = 0.0

    @property
    def pid(self) -> int:
        """Return the process id of the controller that is at work now."""
        return self._child.pid

    @property
    def lines(self) -> JsonLines:
        """Return what it says, to wait for."""
        return self._child.lines

    def take_charge(
        self,
        network: Network,
        routing: RoutingPolicy,
        ports: dict[str, dict[str, str]],
        hosts: dict[str, dict[str, str]],
        board: Path,
    ) -> None:
        """Point every switch at the controller and wait until all have acknowledged their rules."""
        switches = {name: {"dpid": i + 1, "ports": ports[name]} for i, name in enumerate(network.switches)}
        self._job = {
            "network": asdict(network),
            "routing": asdict(routing),
            "switches": switches,
            "hosts": hosts,
            "listen_port": LISTEN_PORT,
            "generation": 0,
            "board": str(board),
        }
        self._child.tell({"job": self._job})
        self._child.wait_for("listening", INSTALL_TIMEOUT_S)
        began = time.monotonic()
        _point_switches(network.switches)
        self._note(self._child.wait_for("installed", INSTALL_TIMEOUT_S))
        self.installation_s = time.monotonic() - began
        _set_patience(network.switches)

    def pin(self, number: int, path: list[str]) -> None:
        """Ask for a pair to be sent along a path; the answer comes as a message `pinned` with this number."""
        if len(self._asked) >= MOST_ASKED:
            self._heard.append(_unanswered(number))
            return
        self._asked[number] = path
        with suppress(ChildEnded):  # the next poll finds out, and answers
            self._child.tell({"pin": {"id": number, "path": path}}, timeout_s=PIN_TIMEOUT_S)

    def poll(self) -> list[Message]:
        """Return what the controller said since the last call; one that has ended or fallen silent is replaced, and that is said too."""
        messages, self._heard = self._heard, []
        try:
            while heard := self._child.hear(0):
                self._heard_at = time.monotonic()
                for message in heard:
                    self._note(message)
                messages += [message for message in heard if message["event"] != "alive"]
            if self._is_silent():
                self._child.kill()
                raise ChildEnded(f"the controller said nothing for {SILENT_S:.0f} s and was killed")
        except ChildEnded as ended:
            messages += self._replace(str(ended))
        return messages

    def _is_silent(self) -> bool:
        """Tell whether it has hung; it says that it is alive once a second. Counted from the first poll: nobody listened before."""
        now = time.monotonic()
        if self._heard_at is None:
            self._heard_at = now
        return now - self._heard_at > SILENT_S

    def _replace(self, what: str) -> list[Message]:
        lost = [_unanswered(number) for number in self._asked]
        self._asked.clear()
        while True:
            self._job["generation"] += 1
            if self._job["generation"] > MOST_RESTARTS:
                raise RuntimeError(f"the controller ended {MOST_RESTARTS + 1} times: see {self._log.name}")
            self._child = Child("controller", self._log)
            self._heard_at = None
            lost.append({"event": "controller_lost", "text": what, "generation": self._job["generation"]})
            try:
                self._child.tell({"job": self._job})
            except ChildEnded as ended:
                what = str(ended)
            else:
                return lost

    def _note(self, message: Message) -> None:
        if "paths" in message:
            self.paths = message["paths"]
        if message["event"] == "pinned":
            pinned = self._asked.pop(message["id"])
            if not message["error"]:  # the next controller is to know of it
                others = [path for path in self._job["routing"]["pinned"] if {path[0], path[-1]} != {pinned[0], pinned[-1]}]
                self._job["routing"]["pinned"] = [*others, pinned]


def _unanswered(number: int) -> Message:
    return {"event": "pinned", "id": number, "error": "the controller does not answer just now", "unavailable": True}


def _point_switches(switches: tuple[str, ...]) -> None:
    """Let every switch obey the controller on the sandbox's loopback, and nobody else."""
    command: list[str] = []
    for switch in switches:
        command += ["--", "set-controller", switch, f"tcp:127.0.0.1:{LISTEN_PORT}"]
        command += ["--", "set", "controller", switch, "connection-mode=out-of-band"]
    tool("ovs-vsctl", *command[1:])
    tool("ovs-appctl", "-t", "ovs-vswitchd", "version")  # wakes it: by itself it looks whether it is connected twice a second


def _set_patience(switches: tuple[str, ...]) -> None:
    """Let no busy moment look like a dead controller, and find a new one within a second.

    Open vSwitch heeds these only where they change on a connection that stands: told together with the controller, they do nothing.
    """
    command: list[str] = []
    for switch in switches:
        command += ["--", "set", "controller", switch, "max_backoff=1000", "inactivity_probe=30000"]
    tool("ovs-vsctl", *command[1:])
