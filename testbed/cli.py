"""The command line: testbed run | sweep | reproduce | watch | report | doctor | clean | schemes | topologies."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed import processes
from testbed.errors import DiskFull, Interrupted, Refusal
from testbed.exits import BAD_INPUT, FAILED, INTERRUPTED, exit_code, verdict
from testbed.spec import SpecError

if TYPE_CHECKING:
    from testbed.planning import Options

app = typer.Typer(
    name="testbed",
    help="Compare gradient-exchange schemes on emulated networks: real packets through real queues, real training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(width=None if sys.stdout.isatty() else 140)
errors = Console(stderr=True, soft_wrap=True)


class Scale(StrEnum):
    """How much of a paper's evaluation is run."""

    quick = "quick"
    full = "full"


Results = Annotated[Path, typer.Option(help="Where results folders are.", envvar="TESTBED_RESULTS")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Share = Annotated[bool, typer.Option("--share", help="Do not wait for another run on this machine; both are flagged.")]
Force = Annotated[bool, typer.Option("--force", help="Run beyond the machine's measured ceiling; the run is marked.")]


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="An experiment file, e.g. experiments/quick.yaml.")],
    results: Results = Path("results"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep complete runs of an earlier try, do the rest.")] = False,
    share: Share = False,
    force: Force = False,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="RUN", help="One run of the plan, by its name, into the shared results folder; no report."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="[ADDRESS:]PORT", help="Serve the API by TCP too, e.g. for Prometheus; else on 127.0.0.1."),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Leave summary, figures and report for `testbed report`, on this machine or another.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run every scheme of an experiment file, then write its summary, figures and report.

    Each run boots a network of its own, verifies its rates and round-trip times, trains, and judges whether the emulation was
    faithful. The results are in results/NAME: docs/results.md tells what each file and number means.
    """
    from testbed.planning import Options

    options = Options(results, share=share, force=force, resume=resume, listen=_address(listen), only=only)
    folder = _run(file, options, "go on with --resume" if only is None else "give the same command again", as_json)
    manifests = sorted(folder.glob("*/manifest.json")) if only is None else [folder / only / "manifest.json"]
    if only is None and not no_report:
        _report(folder, as_json)
    elif as_json:
        told = [{"run": path.parent.name, **verdict(path)} for path in manifests]
        print(json.dumps({"folder": str(folder), **(told[0] if only else {"runs": told})}, indent=1))
    _exit_by(manifests)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="An experiment file, e.g. experiments/sweep.yaml.")],
    results: Results = Path("results"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and how long it will take; run nothing.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again also what has failed twice.")] = False,
    share: Share = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run every cell, scheme and repeat of an experiment file; stop it at any time, the same command goes on.

    Finished runs are skipped, a run that fails is tried once more, and a failure never stops the rest. Then the summary, the long
    table (table.csv) and the figures are written, for two swept numbers with heat maps.
    """
    from testbed import planning

    options = planning.Options(results, share=share, force=force, sweep=True, retry=retry)
    try:
        plan = planning.plan_experiment(file, options)
    except (SpecError, Refusal) as error:
        _fail(str(error), BAD_INPUT)
    if dry_run and as_json:
        print(json.dumps(plan.to_json(), indent=1))
        return
    for sentence in plan.sentences():
        (errors if as_json else console).print(sentence, soft_wrap=True, highlight=False)
    if dry_run:
        return
    folder = _run(file, options, "the same command goes on", as_json)
    _report(folder, as_json)
    _exit_by(folder / run.slug / "manifest.json" for run in plan.runs)


@app.command()
def reproduce(
    paper: Annotated[list[str] | None, typer.Argument(help="netsenseml, dc2, 3lc; without one, all of them.")] = None,
    scale: Annotated[
        Scale, typer.Option(help="quick: half an hour on two cores, repeats of invalid runs included; full: three hours or more.")
    ] = Scale.full,
    results: Results = Path("results"),
    experiments: Annotated[Path, typer.Option(help="Where the experiment files are.")] = Path("experiments"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and how long it will take; run nothing.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing; judge by the results there are. Needs no root.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try again also what has failed twice.")] = False,
    share: Share = False,
    as_json: Json = False,
) -> None:
    """Run what is missing of the experiments that stand for a paper's own, and hold its claims against them.

    Each claim gets its published value and standing, ours, their ratio, a verdict, and why the two may differ; tables and figure are
    in results/reproduce-SCALE. Stop it at any time, the same command goes on.
    """
    from testbed import planning, reproducing

    began_s = time.monotonic()
    options = planning.Options(results, share=share, sweep=True, retry=retry)
    with tempfile.TemporaryDirectory() as copies:
        try:
            asked = reproducing.chosen(paper or [])
            todo = reproducing.jobs(asked, scale.value, options, experiments, Path(copies))
            plans = [] if no_run else [planning.plan_experiment(job.file, job.options) for job in todo]
        except (SpecError, Refusal) as error:
            _fail(str(error), BAD_INPUT)
        if dry_run and as_json:
            print(json.dumps([plan.to_json() for plan in plans], indent=1))
            return
        for sentence in reproducing.plan_words(plans):
            (errors if as_json else console).print(sentence, soft_wrap=True, highlight=False)
        if dry_run:
            return
        if not no_run:
            for job in reproducing.in_time(todo, plans, began_s) if scale is Scale.quick else todo:
                _run(job.file, job.options, "the same command goes on", as_json)
            if due := reproducing.still_due(todo):
                errors.print(f"there was no time to repeat {', '.join(due)}: the same command, given again, does", style="yellow")
    try:
        concluded = reproducing.conclude(asked, results, scale.value, experiments)
    except DiskFull as error:
        _fail(str(error), FAILED)
    if as_json:
        print(json.dumps({"folder": str(concluded.folder), "claims": concluded.rows}, indent=1))
    else:
        reproducing.show(concluded, console)
    _exit_by(Path(plan.folder, run.slug) / "manifest.json" for plan in plans for run in plan.runs)


@app.command()
def watch(
    run: Annotated[Path | None, typer.Argument(help="A run's folder, or an experiment's; without one, the newest experiment.")] = None,
    results: Results = Path("results"),
    once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.1, max=60, help="Time between two looks.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Watch the links and workers of a run while it goes on; of an experiment, run after run. Ctrl-C leaves; the run does not mind."""
    from testbed import watch as watching

    try:
        watching.watch(watching.find(run, results), console, once, as_json, interval)
    except watching.WatchError as error:
        _fail(str(error), BAD_INPUT)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A results folder, e.g. results/quick.")],
    as_json: Json = False,
) -> None:
    """Write report.html, summary.csv, table.csv and the figures of a results folder again; needs no root."""
    _report(folder, as_json)


@app.command()
def doctor(
    as_json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure nothing.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure the ceiling anew.")] = False,
) -> None:
    """Tell what this machine can do, and what to do about each lack."""
    from testbed import doctor as doctors
    from testbed import machine

    if again:
        machine.forget_ceiling()
    findings = list(doctors.examine(measure=not quick, tell=lambda text: errors.print(text)))
    if as_json:
        print(json.dumps({"able": doctors.able(findings), "findings": [finding.to_json() for finding in findings]}, indent=1))
    else:
        table = Table("", "", "", "remedy", box=None, show_header=False, padding=(0, 1))
        looks = {"ok": "green", "lacking": "red", "substituted": "yellow", "absent": "dim"}
        for finding in findings:
            table.add_row(Text(finding.state, looks[finding.state]), finding.name, finding.text, Text(finding.remedy or "", "dim"))
        console.print(table)
    if not doctors.able(findings):
        raise typer.Exit(FAILED)


@app.command()
def clean(results: Results = Path("results")) -> None:
    """Tidy up after killed runs: mark their folders, remove their containers; nothing of a living run is touched."""
    from testbed.clean import clean as tidy
    from testbed.containers.engine import EngineError

    done = []
    try:
        for sentence in tidy(results):
            console.print(sentence, soft_wrap=True)
            done.append(sentence)
    except EngineError as error:
        _fail(f"containers of killed runs were not looked for: {error}", FAILED)
    if not done:
        console.print("nothing to clean")


@app.command()
def schemes(as_json: Json = False) -> None:
    """List the schemes an experiment can compare."""
    from workloads.schemes import listing

    _list([{"scheme": name, "summary": summary} for name, summary in listing()], as_json)


@app.command()
def topologies(as_json: Json = False) -> None:
    """List the kinds of network an experiment can name."""
    from testbed.spec.topology import listing

    _list([{"kind": name, "summary": summary} for name, summary in listing()], as_json)


def _run(file: Path, options: Options, how_to_go_on: str, as_json: bool) -> Path:
    """Run an experiment; leave with a sentence if it cannot be run, or not to its end."""
    from testbed import runner

    try:
        return runner.run_experiment(file, options, errors if as_json else console)
    except (SpecError, Refusal) as error:
        _fail(str(error), BAD_INPUT)
    except DiskFull as error:
        _fail(str(error), FAILED)
    except (Interrupted, KeyboardInterrupt):
        _fail(f"interrupted: what was recorded is kept, the run is marked as failed; {how_to_go_on}", INTERRUPTED)


def _address(listen: str | None) -> tuple[str, int] | None:
    """Read [ADDRESS:]PORT; without an address only this machine reaches it."""
    if listen is None:
        return None
    address, _, port = listen.rpartition(":")
    try:
        if not 1 <= int(port) <= 65535:
            raise ValueError
        return str(IPv4Address(address or "127.0.0.1")), int(port)
    except ValueError:
        _fail(f"--listen {listen}: write a port, e.g. 9464, or an IPv4 address and a port, e.g. 0.0.0.0:9464", BAD_INPUT)


def _exit_by(paths: Iterable[Path]) -> None:
    """Leave by the exit code that tells whether all runs are complete and to be believed."""
    if code := exit_code(paths):
        raise typer.Exit(code)


def _list(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, show_header=False, padding=(0, 2))
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


def _report(folder: Path, as_json: bool) -> None:
    from analysis import ResultsError
    from testbed import reporting

    try:
        reporting.report(folder, None if as_json else console)
    except ResultsError as error:
        _fail(str(error), BAD_INPUT)
    except DiskFull as error:
        _fail(str(error), FAILED)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(Text(message, "red"))
    raise typer.Exit(code)


def main() -> None:
    """Run the command line; it ends with whatever launched it."""
    processes.die_with_launchers()
    app()
