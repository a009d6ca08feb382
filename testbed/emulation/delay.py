"""Delay, jitter and loss of links: plain delay by the kernel's netem where it is there, all else by the user-space delay line.

A delayed link is two veth pairs; their inner ends meet here, on interfaces that shape no rate: TCP's small queues and
HTB's accounting never see the delay element.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from testbed.emulation.delayline import JITTER_REDRAW_S
from testbed.processes import die_with_parent
from topologies import LinkSpec

_NETEM_LIMIT_PACKETS = 1_000_000  # netem must never be the queue


@dataclass(frozen=True)
class DelayedDirection:
    """One direction through the delay element: in at one inner interface, out at the other."""

    name: str
    entry: str
    exit: str
    spec: LinkSpec
    seed: int


class DelayElement(Protocol):
    """What delays a run's links."""

    @property
    def substitution(self) -> str | None:
        """Say what this stands in for, if it does."""

    def change(self, name: str, delay_s: float | None, jitter_s: float | None = None, loss: float | None = None) -> None:
        """Change a direction in place; None stays as it is."""

    def stats(self) -> dict[str, Any] | None:
        """Return the element's own counters, or None where the kernel keeps none."""


class Netem:
    """The kernel's netem on the inner interfaces, which a bridge joins."""

    substitution = None

    def __init__(self, directions: list[DelayedDirection]) -> None:
        """Join each pair of inner interfaces by a bridge and put netem on their egress."""
        self._directions = {d.name: d for d in directions}
        joined: set[frozenset[str]] = set()
        for direction in directions:
            pair = frozenset((direction.entry, direction.exit))
            if pair not in joined:
                bridge = f"b{len(joined)}"
                _ip("link", "add", bridge, "type", "bridge", "stp_state", "0", "mcast_snooping", "0")
                for interface in sorted(pair):
                    _ip("link", "set", interface, "master", bridge)
                _ip("link", "set", bridge, "up")
                joined.add(pair)
            self._apply(direction, direction.spec.delay_s, "add")

    def change(self, name: str, delay_s: float | None, jitter_s: float | None = None, loss: float | None = None) -> None:
        """Change the delay of a direction by `tc qdisc change`."""
        assert not jitter_s and not loss, "links that jitter or lose are the delay line's"
        if delay_s is not None:
            self._apply(self._directions[name], delay_s, "change")

    def stats(self) -> dict[str, Any] | None:
        """Return nothing: netem's drops are in the interface's own counters."""
        return None

    def _apply(self, direction: DelayedDirection, delay_s: float, verb: str) -> None:
        options = ["limit", str(_NETEM_LIMIT_PACKETS), "delay", f"{delay_s * 1e6:.0f}us"]
        subprocess.run(["tc", "qdisc", verb, "dev", direction.exit, "root", "netem", *options], check=True)


class DelayLineClient:
    """The delay line's process, seen from the runner."""

    substitution: str | None = "delay: user-space delay line in place of the kernel's netem"

    def __init__(self, directions: list[DelayedDirection], mtu: int, log: str, dilation: float = 1.0) -> None:
        """Start the process and wait until it carries frames."""
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testbed.emulation.delayline"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=die_with_parent,
            )
        self.pid = self._process.pid
        entries = [
            {
                "name": d.name,
                "from": d.entry,
                "to": d.exit,
                "delay_s": d.spec.delay_s,
                "jitter_s": d.spec.jitter_s,
                "loss": d.spec.loss,
                "seed": d.seed,
            }
            for d in directions
        ]
        self._tell({"directions": entries, "frame_bytes": mtu + 64, "redraw_s": JITTER_REDRAW_S * dilation})
        if not self._hear().get("realtime"):
            self.substitution = f"{self.substitution} (without real-time priority)"

    def change(self, name: str, delay_s: float | None, jitter_s: float | None = None, loss: float | None = None) -> None:
        """Change a direction; frames already held keep their time."""
        values = {"delay_s": delay_s, "jitter_s": jitter_s, "loss": loss}
        self._tell({"set": name, **{key: value for key, value in values.items() if value is not None}})

    def stats(self) -> dict[str, Any]:
        """Return counters and lateness by direction."""
        self._tell({"stats": True})
        return self._hear()

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the delay line ended with code {self._process.wait()}; its log is logs/delayline.log")
        answer: dict[str, Any] = json.loads(line)
        return answer


def has_netem() -> bool:
    """Try netem on a throw-away interface (call it inside a sandbox)."""
    _ip("link", "add", "netem-probe", "type", "veth", "peer", "name", "netem-peer")
    tried = subprocess.run(["tc", "qdisc", "add", "dev", "netem-probe", "root", "netem", "delay", "1ms"], capture_output=True)
    _ip("link", "del", "netem-probe")
    return tried.returncode == 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
