"""All ranks, as rank 0 sees them: ask each the same, have them run, and bring what they left into the run's folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from testbed.cluster.clocks import moved, offset_s
from testbed.cluster.follower import answer_name, cease_name, file_name, order_name
from testbed.cluster.interfaces import is_loopback
from testbed.cluster.mailbox import Mailbox, Message
from testbed.cluster.member import Member
from testbed.cluster.roster import Machine, alone
from testbed.cluster.station import TICK_S
from testbed.data import Wanted
from testbed.errors import Refusal
from testbed.record import RunFolder, read_lines

LOOK_PATIENCE_S = 300.0
HAND_IN_PATIENCE_S = 600.0  # with ranks whose work is done: over a slow network records take their time
CEASE_PATIENCE_S = 60.0  # with ranks that were told to end their work
LOG_LINES = 12


class RunFailed(RuntimeError):
    """A run that did not come to its end; the message has the reason and the last lines of the log."""


class RankLost(RunFailed):
    """A rank that answers no more: nothing can follow."""


class Crew:
    """Rank 0's way to all ranks, itself included."""

    def __init__(self, member: Member, mailbox: Mailbox) -> None:
        self.launch = member.launch
        self.machines: list[Machine] = []  # by rank, once they have looked around
        self._member, self._mailbox = member, mailbox
        self._orders = 0

    def gather(self, datasets: list[Wanted], threads: int) -> list[Machine]:
        """Have every rank look around and make ready; return what they found, by rank."""
        number = self._order("meet")
        addresses = [answer["address"] for answer in [self._member.meet(), *self._answers(number)]]
        order: dict[str, Any] = {
            "peers": [address for address in addresses if address and not is_loopback(address)],
            "datasets": datasets,
            "threads": threads,
        }
        number = self._order("look", **order)
        self.machines = [self._member.look(**order), *(Machine.from_json(answer) for answer in self._answers(number))]
        return self.machines

    def run(self, job: dict[str, Any], folder: RunFolder, tick: Callable[[], None]) -> None:
        """Have all ranks do their share of a run and bring it into the folder; RunFailed if it did not come to its end."""
        order: dict[str, Any] = {"job": {**job, "store_prefix": f"testbed/run/{self._orders}"}, "alone": alone(self.machines)}
        number = self._order("run", **order)
        try:
            self._member.start(**order, run_dir=folder.path.resolve(), log=folder.logs / "worker-0.log")
        except (RuntimeError, OSError) as error:
            raise RankLost(f"{self._name(0)} could not start its worker: {error}") from error
        ends = self._follow(number, tick)
        for rank, end in ends.items():
            for path in end["files"]:
                (folder.path / path).write_bytes(self._mailbox.take(file_name(number, rank, path)))
        _set_clocks(folder, self.launch.world_size)
        self._require_success(ends, folder)

    def dismiss(self) -> None:
        """Tell the others that this is the end."""
        self._order("end")

    def _follow(self, number: int, tick: Callable[[], None]) -> dict[int, Message]:
        """Wait for the end of all ranks' workers; return how each ended, in the order in which they were heard of.

        Once one has failed the others are ended too. A rank that is not heard of in the end is lost.
        """
        ends: dict[int, Message] = {}
        deadline, ceased = math.inf, False
        while len(ends) < self.launch.world_size and time.monotonic() < deadline:
            if 0 in ends:
                time.sleep(TICK_S)
            elif (code := self._member.station.poll()) is not None:
                ends[0] = {"code": code, "error": None, "files": [], "ceased": ceased}
            for rank in range(1, self.launch.world_size):
                if rank not in ends and self._mailbox.has(answer_name(number, rank)):
                    ends[rank] = self._mailbox.read(answer_name(number, rank))
            if cause_of(ends) is None:
                deadline = min(deadline, time.monotonic() + HAND_IN_PATIENCE_S) if 0 in ends else math.inf
                tick()
            elif not ceased:
                self._mailbox.post(cease_name(number), {})
                self._member.station.end()
                deadline, ceased = time.monotonic() + CEASE_PATIENCE_S, True
        return ends

    def _require_success(self, ends: dict[int, Message], folder: RunFolder) -> None:
        cause = cause_of(ends)
        if cause is not None:
            text = _in_words(ends[cause])
            folder.event(time.monotonic(), "worker_failed", f"worker {cause} {text}", {"rank": cause, "code": ends[cause]["code"]})
        silent = [self._name(rank) for rank in range(self.launch.world_size) if rank not in ends]
        if silent:
            raise RankLost(f"no word from {', '.join(silent)}: look for what ended it there, then give the same command again")
        if cause is not None:
            raise RunFailed(f"the worker of {self._name(cause)} {text}; its last lines:\n{_last_lines(folder, cause)}")

    def _order(self, do: str, **fields: Any) -> int:
        number, self._orders = self._orders, self._orders + 1
        self._mailbox.post(order_name(number), {"do": do, **fields})
        return number

    def _answers(self, number: int) -> list[Message]:
        answers = []
        for rank in range(1, self.launch.world_size):
            try:
                answers.append(self._mailbox.read(answer_name(number, rank), LOOK_PATIENCE_S))
            except TimeoutError as error:
                raise Refusal(f"rank {rank} did not answer within {LOOK_PATIENCE_S:.0f} s: see what its torchrun says") from error
        return answers

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self.machines[rank].host}"


def cause_of(ends: dict[int, Message]) -> int | None:
    """Return whose end brought the others down: one killed by a signal, which is nobody's consequence, else the first that failed."""
    failed = [rank for rank, end in ends.items() if end["code"] != 0 and not end["ceased"]]
    killed = [rank for rank in failed if (ends[rank]["code"] or 0) < 0]
    return next(iter(killed + failed), None)


def _set_clocks(folder: RunFolder, ranks: int) -> None:
    """Put what other machines recorded on rank 0's clock; leave out what cannot be."""
    reference = read_lines(folder.stream / "events-0.jsonl")
    for rank in range(1, ranks):
        by_s = offset_s(read_lines(folder.stream / f"events-{rank}.jsonl"), reference)
        for path in folder.stream.glob(f"*-{rank}.jsonl"):
            path.write_text("" if by_s is None else moved(read_lines(path), by_s))


def _in_words(end: Message) -> str:
    code = end["code"]
    if code is None:
        return f"could not be started: {end['error']}"
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _last_lines(folder: RunFolder, rank: int) -> str:
    try:
        return "\n".join((folder.logs / f"worker-{rank}.log").read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return "(no log)"
