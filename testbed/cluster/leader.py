"""Rank 0: plan the experiment, have all ranks do run after run, write the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed import data, disk, spec
from testbed.cluster.crew import Crew, RankLost, RunFailed
from testbed.cluster.judgement import judge
from testbed.cluster.launch import not_ours
from testbed.cluster.roster import refusals
from testbed.emulation.judgement import Unjudgeable
from testbed.errors import Refusal
from testbed.experiment_folder import describe, description, passed_over, refuse_other
from testbed.manifest import opening
from testbed.marking import CUT_SHORT, marked
from testbed.planning import SWEEP_REMEDY, Options, chosen, survey
from testbed.progress import Progress, Watcher
from testbed.record import RunFolder, now
from testbed.sweep import Run, expand
from workloads.job import Job

OF_EACH_RANK = ("rank", "interface", "run_dir")  # the fields of a job that differ
INTERRUPTED = "ended from outside: another rank was lost, or the job was stopped"


@dataclass(frozen=True)
class Request:
    """What rank 0 was asked for."""

    file: Path
    results: Path
    only: str | None
    threads: int
    command: str  # by which torchrun can be asked again


def lead(request: Request, crew: Crew, console: Console) -> tuple[Path, list[Run]]:
    """Do every run of the experiment that is not complete; return the results folder and the runs asked for."""
    experiment = spec.load(request.file)
    planned = expand(experiment)
    runs = chosen(planned, request.only)
    folder = request.results / experiment.name
    _refuse(runs, crew)
    content = description(experiment, planned, request.file, request.command)
    refuse_other(folder, content["spec"], SWEEP_REMEDY)
    if reasons := refusals(crew.gather(data.wanted(runs), request.threads)):
        raise Refusal("\n".join(reasons))
    console.print(f"rank 0 is on {crew.machines[0].host}: the results go there, into {folder.resolve()}", soft_wrap=True)
    with disk.watched(folder):
        describe(folder, content, anew=request.only is None)
        schedule = survey(experiment, runs, folder, Options(request.results, resume=True))
        progress, said = Progress(console, len(runs)), set[str]()
        try:
            for number, run in enumerate(runs, 1):
                stands = schedule.standings[run.slug]
                if why := passed_over(folder / run.slug, stands):
                    progress.pass_over(number, run.slug, *why)
                    continue
                progress.expect(schedule.forecast.of(run), schedule.after(number))
                progress.begin(number, run.slug)
                first = {**opening(run, request.command, list(stands.history)), **_of_machines(crew)}
                manifest = _run(run, RunFolder(folder / run.slug, first), crew, progress)
                schedule.forecast.learn(manifest)
                for note in [note for note in manifest["notes"] if note not in said]:
                    console.print(f"note: {note}", style="yellow", soft_wrap=True)
                said.update(manifest["notes"])
        finally:
            progress.close()
    return folder, runs


def _refuse(runs: Sequence[Run], crew: Crew) -> None:
    """Refuse what these ranks cannot do, before they are asked anything."""
    size = crew.launch.world_size
    for run in runs:
        if run.experiment.backend != "cluster":
            raise Refusal(not_ours(run.experiment.backend))
        if run.experiment.topology.workers != size:
            wanted = run.experiment.topology.workers
            said = f"{run.slug}: topology.workers is {wanted} and torchrun started {size} ranks"
            raise Refusal(f"{said}: give --nnodes and --nproc-per-node whose product is {wanted}")


def _of_machines(crew: Crew) -> dict[str, Any]:
    """Return what a manifest says of real machines; of their network nothing is known."""
    unknown = dict.fromkeys(("network", "transport", "paths", "verification", "fidelity", "cpu", "prediction", "shared_machine"))
    return {"machines": [one.to_json() for one in crew.machines], "notes": [], "forced": False, "steered": False, **unknown}


def _run(run: Run, record: RunFolder, crew: Crew, progress: Progress) -> dict[str, Any]:
    """Do one run; return its manifest."""
    job = _job(run, crew)
    watcher = Watcher(record.stream, crew.launch.world_size, job["workload"]["budget"])
    try:
        with marked(record, record.path, INTERRUPTED):
            crew.run(job, record, lambda: progress.update(watcher.state()))
            judged = judge(record, crew.machines)
            record.to_parquet(judged["origin_mono_s"])
            record.save(**judged, status="complete", finished=now())
    except CUT_SHORT:
        raise
    except BaseException as error:
        expected = isinstance(error, RunFailed | Unjudgeable)
        record.fail(str(error) if expected else f"{type(error).__name__}: {error}", "the run failed")
        if isinstance(error, RankLost) or not expected:
            raise
        progress.end(f"failed: {error}", "red")
        return record.manifest
    record.drop_stream()
    text = "; ".join([f"{judged['workers'][0]['steps']} steps", *judged["invalid_reasons"]])
    progress.end(f"done: {text}" if judged["valid"] else f"INVALID: {text}", "green" if judged["valid"] else "red")
    return record.manifest


def _job(run: Run, crew: Crew) -> dict[str, Any]:
    """Return what every rank's job has in common. Nobody is nice: there is no emulator to make way for."""
    launch = crew.launch
    job = Job(
        run=run.slug,
        rank=0,
        world_size=launch.world_size,
        master_addr=launch.address,
        master_port=launch.port,
        interface="",
        run_dir="",
        seed=run.seed,
        scheme=run.scheme.params,
        workload=run.experiment.workload.to_job(),
        threads=crew.machines[0].threads,
        nice=0,
    )
    return {name: value for name, value in vars(job).items() if name not in OF_EACH_RANK}
