"""The command torchrun starts on every machine: torchrun ... -m testbed.cluster EXPERIMENT.yaml"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from testbed import spec
from testbed.cluster.crew import Crew, RunFailed
from testbed.cluster.follower import follow
from testbed.cluster.launch import Launch, command, how_to_start, not_ours
from testbed.cluster.leader import Request, lead
from testbed.cluster.mailbox import Mailbox
from testbed.cluster.member import Member
from testbed.errors import DiskFull, Interrupted, Refusal
from testbed.exits import BAD_INPUT, FAILED, INTERRUPTED, exit_code
from testbed.interrupts import signals_raise
from testbed.spec import SpecError

RESULTS = Path("results")
STORE_TIMEOUT = timedelta(seconds=300)

console = Console(width=None if sys.stdout.isatty() else 140)


def main(
    file: Annotated[Path, typer.Argument(help="An experiment file with backend: cluster; read on rank 0's machine.")],
    results: Annotated[Path, typer.Option(help="Where results folders are, on rank 0's machine.", envvar="TESTBED_RESULTS")] = RESULTS,
    only: Annotated[str | None, typer.Option("--only", metavar="RUN", help="One run of the plan, by its name; no report.")] = None,
    interface: Annotated[
        str | None, typer.Option(help="This machine's network interface to the others; else the one that faces rank 0.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads that a worker computes with.")] = 1,
) -> None:
    """Do every run of an experiment on the machines that torchrun has started this on; what is complete is passed over."""
    launch = Launch.from_environment()
    if launch is None:
        _refuse_to_start(file, results, only)
    with tempfile.TemporaryDirectory(prefix="testbed-cluster-") as folder:
        member = Member(launch, interface, Path(folder))
        try:
            with signals_raise():
                mailbox = Mailbox(_store())
                again = command(sys.argv[1:], launch.nodes, launch.local_world_size)
                request = Request(file, results, only, threads, again)
                code = _lead(request, Crew(member, mailbox)) if launch.rank == 0 else follow(member, mailbox)
        except (Interrupted, KeyboardInterrupt):
            code = INTERRUPTED
        finally:
            member.close()
    sys.exit(code)


def _lead(request: Request, crew: Crew) -> int:
    """Lead, report and return the exit code; the others are dismissed however it ends."""
    from testbed.reporting import report

    try:
        folder, runs = lead(request, crew, console)
        if request.only is None:
            report(folder, console)
        return exit_code(folder / run.slug / "manifest.json" for run in runs)
    except (SpecError, Refusal) as error:
        return _said(str(error), BAD_INPUT)
    except (RunFailed, DiskFull) as error:
        return _said(str(error), FAILED)
    finally:
        with suppress(RuntimeError):  # a store that is gone has taken the others along
            crew.dismiss()


def _store() -> Any:
    """Return torchrun's store, or make it on rank 0 where torchrun leaves that to us."""
    from torch.distributed import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", timeout=STORE_TIMEOUT))
    return PrefixStore("testbed", store)


def _refuse_to_start(file: Path, results: Path, only: str | None) -> NoReturn:
    try:
        experiment = spec.load(file)
    except SpecError as error:
        sys.exit(_said(str(error), BAD_INPUT))
    is_ours = experiment.backend == "cluster"
    sys.exit(_said(how_to_start(file, experiment.topology.workers, results, only) if is_ours else not_ours(experiment.backend), BAD_INPUT))


def _said(text: str, code: int) -> int:
    Console(stderr=True, soft_wrap=True).print(Text(text, "red"))
    return code


if __name__ == "__main__":
    typer.run(main)
