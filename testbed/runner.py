"""Run an experiment: expand it, check that this machine can do it, run it run by run, leave a complete folder."""

from __future__ import annotations

import shlex
import socket
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed import data, disk, machine, spec
from testbed.attempts import PATIENT_ATTEMPTS, Standing, history
from testbed.background_load import background_load_bps
from testbed.cluster.launch import how_to_start
from testbed.emulation import backend, cpulimits
from testbed.emulation.calm import await_calm
from testbed.emulation.judgement import Unjudgeable, judge
from testbed.emulation.plan import RunPlan
from testbed.emulation.sandboxes import Sandboxes
from testbed.emulation.usage import Stolen
from testbed.envelope import heaviest, watched
from testbed.errors import Refusal
from testbed.experiment_folder import describe, description, passed_over, refuse_other, rename_away
from testbed.interrupts import signals_raise
from testbed.lock import MachineLock
from testbed.manifest import opening
from testbed.marking import CUT_SHORT, marked
from testbed.ownership import give_to_caller
from testbed.phases import Moments, phases_s
from testbed.planning import Options, chosen, survey
from testbed.progress import Progress, Watcher
from testbed.record import RunFolder, now
from testbed.spec import Experiment, congestion
from testbed.spec.models import ContainerHosts
from testbed.sweep import Run, expand
from testbed.timeline import timeline_of
from topologies.load import ring_load_bps

CONTAINERS_TOLD = ("name", "image", "engine", "user_id", "memory_bytes", "gpus")  # in the manifest


def run_experiment(path: Path, options: Options, console: Console) -> Path:
    """Run every run of an experiment file, or the one asked for; return the results folder."""
    experiment = spec.load(path)
    planned = expand(experiment)
    runs = chosen(planned, options.only)
    if any(run.experiment.backend == "cluster" for run in runs):
        raise Refusal(how_to_start(path, experiment.topology.workers, options.results, options.only))
    check(experiment, runs)
    _check_address(options.listen)
    for text in congestion.warnings(run.experiment for run in runs):
        console.print(text, style="yellow", soft_wrap=True)
    folder = options.results / experiment.name
    with MachineLock(options.share, lambda text: console.print(text, style="yellow", soft_wrap=True)) as lock, disk.watched(folder):
        if not options.force:
            check_ceiling(runs, console)
        _open_folder(folder, experiment, planned, path, options, console)
        schedule = survey(experiment, runs, folder, options)
        progress = Progress(console, len(runs))
        try:
            with signals_raise(), Sandboxes() as sandboxes:
                means = _Means(folder, options, lock, progress, sandboxes)
                for number, run in enumerate(runs, 1):
                    stands = schedule.standings[run.slug]
                    if why := passed_over(folder / run.slug, stands):
                        progress.pass_over(number, run.slug, *why)
                    else:
                        own, rest = schedule.forecast.of(run), schedule.after(number)
                        progress.expect(own, rest)
                        again_s = own.seconds + rest.seconds
                        schedule.forecast.learn(_run_until_believed(number, run, stands, again_s, means))
        finally:
            progress.close()
            if options.only is None:
                give_to_caller(folder)
            else:  # others may be at work beside it
                give_to_caller(folder, below=False)
                give_to_caller(folder / "experiment.json")
                give_to_caller(folder / options.only)
    return folder


def check(experiment: Experiment, runs: list[Run]) -> None:
    """Refuse, with every reason at once, what cannot be run here."""
    reasons = list(spec.unsupported(experiment))
    try:
        machine.require_emulation()
    except machine.MachineError as error:
        reasons.append(str(error))
    reasons += data.problems(data.wanted(runs))
    reasons += _transport_problems(runs)
    in_processes = [run.experiment for run in runs if run.experiment.hosts.kind == "process"]
    reasons += cpulimits.problems(one.cpus(rank) for one in in_processes for rank in range(one.topology.workers))
    reasons += _container_problems(runs)
    if reasons:
        raise Refusal("\n".join(reasons))


def _container_problems(runs: list[Run]) -> list[str]:
    wanted = [run.experiment.hosts for run in runs if isinstance(run.experiment.hosts, ContainerHosts)]
    if not wanted:
        return []
    from testbed.containers import order  # Docker's client is imported where it is needed

    return order.problems(wanted)


def _transport_problems(runs: list[Run]) -> list[str]:
    known = machine.congestion_controls()
    wanted = {run.experiment.congestion_control for run in runs}
    return [f"transport.congestion_control: this kernel has no {name}; it has {', '.join(known)}" for name in sorted(wanted - set(known))]


def _check_address(listen: tuple[str, int] | None) -> None:
    """Refuse an address and port for the API that cannot be had, before anything is begun."""
    if listen:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(listen)
            except OSError as error:
                raise Refusal(f"--listen {':'.join(map(str, listen))}: {error.strerror or error}; choose another") from error


def check_ceiling(runs: list[Run], console: Console) -> None:
    """Refuse what would ask more of the switches than this machine was measured to carry (call it with the machine to oneself)."""
    kernel = machine.has_kernel_datapath()
    problems = {}
    doubted: set[int] = set()  # the frame sizes whose ceiling was too low, and so measured once more: the machine may have been busy

    def ceiling_of(mtu: int, anew: bool) -> float:
        try:
            return machine.ceiling_bps(mtu, kernel, lambda text: console.print(text, soft_wrap=True), anew)
        except machine.MachineError as error:
            raise Refusal(str(error)) from error

    for run in runs:
        experiment = run.experiment
        network = heaviest(experiment.network(run.seed), timeline_of(experiment, run.seed))
        mtu, background_bps = experiment.topology.resolved_mtu(), background_load_bps(experiment.conditions, network)
        load_bps = (ring_load_bps(network) + background_bps) / experiment.dilation
        who = "workers and background traffic" if background_bps else "workers"
        ceiling_bps = ceiling_of(mtu, anew=False)
        if load_bps > ceiling_bps and mtu not in doubted:
            doubted.add(mtu)
            ceiling_bps = ceiling_of(mtu, anew=True)
        if load_bps > ceiling_bps:
            problems[load_bps] = (
                f"{run.slug}: the {who} could ask {load_bps / 1e6:.0f} Mbit/s of the switches, and this machine carries "
                f"{ceiling_bps / 1e6:.0f} at MTU {mtu}: lower the rates, raise topology.mtu or dilation, "
                "or run with --force, which marks the run"
            )
    if problems:
        raise Refusal("\n".join(problems.values()))


def _open_folder(folder: Path, experiment: Experiment, planned: list[Run], path: Path, options: Options, console: Console) -> None:
    content = description(experiment, planned, path, _command())
    if options.keeps:
        refuse_other(folder, content["spec"], options.remedy)
    else:
        rename_away(folder, lambda text: console.print(text, soft_wrap=True))
    describe(folder, content, anew=options.only is None)


@dataclass(frozen=True)
class _Means:
    """What all runs of an experiment are run with."""

    folder: Path
    options: Options
    lock: MachineLock
    progress: Progress
    sandboxes: Sandboxes


def _run_until_believed(number: int, run: Run, stands: Standing, again_s: float, means: _Means) -> dict[str, Any]:
    """Run a run as often as it needs and may; return its last manifest. Once more, with all that is due after it, takes `again_s`."""
    earlier, manifest = list(stands.history), dict[str, Any]()
    for attempt in range(max(stands.tries, PATIENT_ATTEMPTS)):
        means.progress.begin(number, run.slug if attempt == 0 else f"{run.slug} (again)")
        if attempt > 0:
            await_calm(means.progress.stage)
        stolen = Stolen()
        manifest = _run_once(run, earlier, means)
        unfaithful = manifest["status"] == "complete" or manifest.get("verification_failed")
        worth_more = unfaithful or means.options.persistent
        is_hosts_fault = unfaithful and stolen.share() > machine.MOST_STOLEN
        if manifest["valid"] or not worth_more or (attempt + 1 >= stands.tries and not is_hosts_fault):
            break
        if not means.options.allows_repeat(again_s, time.monotonic()):
            means.progress.pass_over(number, run.slug, "not repeated for want of time: the same command, given again, does", "yellow")
            break
        earlier = list(history(manifest))
    return manifest


def _run_once(run: Run, earlier: list[dict[str, Any]], means: _Means) -> dict[str, Any]:
    folder, options, progress, began_s = means.folder, means.options, means.progress, time.monotonic()
    planned = _plan(run, folder / run.slug)
    record = RunFolder(folder / run.slug, _first_manifest(run, planned, options, earlier))
    plan = planned.dilated(run.experiment.dilation)
    watcher = Watcher(record.stream, len(plan.network.hosts), plan.workload["budget"], plan.dilation)
    began = time.time()
    try:
        with marked(record, folder):
            tell = backend.Tell(progress.stage, lambda: progress.update(watcher.state()))
            backend.execute(plan, record, tell, means.sandboxes, options.listen)
            ended_s, judged, judged_s = time.monotonic(), judge(plan, record), time.monotonic()
            record.to_parquet(judged["origin_mono_s"], plan.dilation)
            phases = phases_s(record.rows("events"), record.rows("evals"), Moments(began_s, ended_s, judged_s, time.monotonic()))
            marks = {"status": "complete", "finished": now(), "shared_machine": means.lock.was_shared(began)}
            record.save(**judged, phases_s=phases, **marks)
    except CUT_SHORT:
        raise
    except BaseException as error:
        unverified, expected = isinstance(error, backend.NotFaithful), isinstance(error, backend.RunFailed | Unjudgeable)
        reason = str(error) if expected else f"{type(error).__name__}: {error}"
        record.fail(reason, reason if unverified else "the run failed", verification_failed=unverified)
        if not expected:
            if not (options.persistent and isinstance(error, Exception)):  # a fault of ours
                raise
            (record.logs / "runner.log").write_text("".join(traceback.format_exception(error)))
        progress.end(f"failed: {reason}", "red")
        return record.manifest
    record.drop_stream()
    _tell_end(record.manifest, progress)
    return record.manifest


def _tell_end(manifest: dict[str, Any], progress: Progress) -> None:
    fidelity = manifest["fidelity"]["value"]
    text = f"{manifest['workers'][0]['steps']} steps, fidelity {'not tested' if fidelity is None else f'{fidelity:.3f}'}"
    if manifest["valid"]:
        progress.end(f"done: {text}", "green")
    else:
        progress.end(f"INVALID: {text}; {'; '.join(manifest['invalid_reasons'])}", "red")


def _plan(run: Run, run_dir: Path) -> RunPlan:
    experiment = run.experiment
    mtu, transport = experiment.topology.resolved_mtu(), experiment.transport
    network, conditions = experiment.network(run.seed), timeline_of(experiment, run.seed)
    workload, containers = _placed(experiment)
    return RunPlan(
        run=run.slug,
        run_dir=str(run_dir.resolve()),
        network=watched(network, conditions).with_queues_fixed(mtu),
        mtu=mtu,
        transport={"congestion_control": experiment.congestion_control, "ecn": transport.ecn},
        kernel_datapath=machine.has_kernel_datapath(),
        seed=run.seed,
        routing=asdict(run.experiment.routing.policy(run.seed)),
        scheme=run.scheme.params,
        workload=workload,
        timeline=conditions,
        slowdowns=[experiment.slowdowns(rank) for rank in range(experiment.topology.workers)],
        cpus=[experiment.cpus(rank) for rank in range(experiment.topology.workers)],
        containers=containers,
    )


def _placed(experiment: Experiment) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the workload as its workers read it, and what their containers are made from, if they are to be in some."""
    workload = experiment.workload.to_job()
    if not isinstance(experiment.hosts, ContainerHosts):
        return workload, None
    from testbed.containers import order

    workload = order.data_dir_of(workload)
    try:
        return workload, asdict(order.order(experiment.hosts, experiment.topology.workers, workload))
    except order.EngineError as error:  # it was there when the experiment began
        raise Refusal(f"hosts: {error}") from error


def _first_manifest(run: Run, plan: RunPlan, options: Options, earlier: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        **opening(run, _command(), earlier),
        "network": {**asdict(replace(plan.network, routes=())), "mtu": plan.mtu},
        "forced": options.force,
        "shared_machine": options.share,
        "steered": False,
        "containers": plan.containers and {name: plan.containers[name] for name in CONTAINERS_TOLD},
    }


def _command() -> str:
    return shlex.join(["testbed", *sys.argv[1:]])
