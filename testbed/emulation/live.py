"""A run while it goes on, as the API shows it: the board's queues, the controller's paths, and a way to ask the controller for another."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controller.api import ControlError
from controller.board import Board, Entry
from controller.routing import RoutingError, check_pin
from topologies import Network

ANSWER_S = 5.0


class LiveRun:
    """What `controller.api.Api` asks for. `hear` is called by the thread that follows the sandbox, the rest by the API's threads."""

    def __init__(self, experiment: str, run: str, network: Network, board: Path, ask: Callable[[dict[str, Any]], None]) -> None:
        """`ask` sends a request into the sandbox."""
        self._names = {"experiment": experiment, "run": run}
        self._network, self._board, self._ask = network, Board.open(board), ask
        self._paths: list[list[str]] = []
        self._down: set[str] = set()
        self._numbers = itertools.count(1)
        self._answers: dict[int, _Answer] = {}

    def run(self) -> dict[str, str]:
        """Name the run."""
        return self._names

    def entries(self) -> list[Entry]:
        """Read every queue."""
        return self._board.read_all()

    def topology(self) -> dict[str, Any]:
        """Describe nodes and links, and which links are down."""
        network = self._network
        links = [{"name": link.name, "a": link.a, "b": link.b, "bottleneck": link.bottleneck} for link in network.links]
        return {
            "hosts": list(network.hosts),
            "traffic_hosts": list(network.traffic_hosts),
            "switches": list(network.switches),
            "links": links,
            "down": sorted(self._down),
        }

    def paths(self) -> list[list[str]]:
        """Return the path of every pair, as the controller last told."""
        return self._paths

    def pin(self, path: list[str]) -> str | None:
        """Ask the controller to pin a pair to a path; return what speaks against it, if anything does."""
        try:
            check_pin(self._network, tuple(path))
        except RoutingError as error:
            return str(error)
        number, answer = next(self._numbers), _Answer()
        self._answers[number] = answer
        try:
            self._ask({"pin": {"id": number, "path": path}})
            if not answer.there.wait(ANSWER_S) or answer.unavailable:
                raise ControlError("the controller does not answer just now; try again in a second")
            return answer.error
        except OSError as error:
            raise ControlError("the run is ending") from error
        finally:
            del self._answers[number]

    def hear(self, message: dict[str, Any]) -> None:
        """Follow what the controller says."""
        self._paths = message.get("paths", self._paths)
        match message["event"]:
            case "installed":
                self._down = set(message.get("down", ()))
            case "link_down":
                self._down.add(message["link"])
            case "link_up":
                self._down.discard(message["link"])
            case "pinned":
                if (answer := self._answers.get(message["id"])) is not None:
                    answer.error, answer.unavailable = message["error"], message.get("unavailable", False)
                    answer.there.set()

    def close(self) -> None:
        """Let the board go."""
        self._board.close()


class _Answer:
    def __init__(self) -> None:
        self.there = threading.Event()
        self.error: str | None = None
        self.unavailable = False
