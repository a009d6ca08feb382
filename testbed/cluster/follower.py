"""Every rank but the first: do what rank 0 orders, hand in what it left."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

from testbed.cluster.mailbox import Mailbox, Message
from testbed.cluster.member import Member

CEASE_INTERVAL_S = 5.0  # between looks whether a run is called off: a message of some 100 bytes each


def order_name(number: int) -> str:
    """Name an order; they are numbered from 0."""
    return f"order/{number}"


def answer_name(number: int, rank: int) -> str:
    """Name a rank's answer to an order."""
    return f"answer/{number}/{rank}"


def cease_name(number: int) -> str:
    """Name the word that an order is called off."""
    return f"cease/{number}"


def file_name(number: int, rank: int, path: str) -> str:
    """Name a file that a rank hands in with its answer."""
    return f"file/{number}/{rank}/{path}"


def follow(member: Member, mailbox: Mailbox) -> int:
    """Obey until rank 0 says that this is the end; return the exit code."""
    for number in itertools.count():
        order = mailbox.read(order_name(number))
        match order.pop("do"):
            case "meet":
                answer: Message = member.meet()
            case "look":
                machine = member.look(**order)
                answer = {**machine.to_json(), "problems": machine.problems}
            case "run":
                answer = _run(member, mailbox, number, **order)
            case _:
                break
        mailbox.post(answer_name(number, member.launch.rank), answer)
    return 0


def _run(member: Member, mailbox: Mailbox, number: int, job: dict[str, Any], alone: list[int]) -> Message:
    """Do this rank's share of a run and hand in its files, however it ended."""
    folder = member.folder / str(number)
    log = Path("logs") / f"worker-{member.launch.rank}.log"
    (folder / log).parent.mkdir(parents=True)
    error: str | None = None
    code: int | None = None
    ceased = False
    try:
        member.start(job, alone, folder, folder / log)
        while (code := member.station.poll(CEASE_INTERVAL_S)) is None:
            if mailbox.has(cease_name(number)):
                member.station.end()
                ceased = True
    except (RuntimeError, OSError) as fault:
        error = str(fault)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    for path in files:
        mailbox.send(file_name(number, member.launch.rank, path), (folder / path).read_bytes())
    shutil.rmtree(folder)
    return {"code": code, "error": error, "files": files, "ceased": ceased}
