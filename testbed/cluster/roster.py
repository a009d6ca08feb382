"""Who takes part: what each rank says of its machine, and why they could not work together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

ALIKE = {"torch": "pip install the same torch on all machines", "testbed": "check out the same commit on all machines"}


@dataclass(frozen=True)
class Machine:
    """One rank's machine."""

    host: str
    interface: str
    address: str
    mtu: int | None
    congestion_control: str | None
    device: str  # what the workers compute on
    threads: int
    kernel: str
    cpus: int | None
    versions: dict[str, str]
    git_commit: str | None
    problems: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Machine:
        """Read it back."""
        return cls(**{**raw, "problems": tuple(raw["problems"])})

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest."""
        return {name: value for name, value in asdict(self).items() if name != "problems"}

    def version_of(self, what: str) -> str | None:
        """Return the version of torch, or of the testbed itself."""
        return self.git_commit if what == "testbed" else self.versions.get(what)


def refusals(machines: Sequence[Machine]) -> list[str]:
    """Say why these machines, in order of rank, cannot do an experiment together."""
    sentences = [f"{_name(rank, one)}: {text}" for rank, one in enumerate(machines) for text in one.problems]
    first = machines[0]
    for rank, one in enumerate(machines):
        for what, remedy in ALIKE.items():
            if one.version_of(what) != first.version_of(what):
                sentences.append(
                    f"{_name(rank, one)} has {what} {one.version_of(what)} and {_name(0, first)} has {first.version_of(what)}: {remedy}"
                )
    if len({one.host for one in machines}) > 1:
        sentences += [
            f"{_name(rank, one)}: other machines do not reach its interface {one.interface} ({one.address}): name another with --interface"
            for rank, one in enumerate(machines)
            if one.address.startswith("127.") or one.address == "::1"
        ]
    return list(dict.fromkeys(sentences))


def alone(machines: Sequence[Machine]) -> list[int]:
    """Return the ranks whose interface no other rank sends by: only theirs tell what one worker sent."""
    users = Counter((one.host, one.interface) for one in machines)
    return [rank for rank, one in enumerate(machines) if users[one.host, one.interface] == 1]


def _name(rank: int, one: Machine) -> str:
    return f"rank {rank} on {one.host}"
