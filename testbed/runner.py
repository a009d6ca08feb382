"""Run an experiment: expand it, check that this machine can do it, run it run by run, leave a complete folder."""

from __future__ import annotations

import itertools
import os
import platform
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from testbed import machine, spec
from testbed.emulation import backend
from testbed.emulation.judgement import Unjudgeable, judge
from testbed.emulation.plan import RunPlan
from testbed.lock import MachineLock
from testbed.ownership import give_to_caller
from testbed.processes import this_process
from testbed.progress import Progress, Watcher
from testbed.record import SCHEMA, RunFolder, read_json, write_json
from testbed.spec import Experiment
from testbed.sweep import Run, expand
from topologies.load import ring_load_bps
from workloads.datasets import DatasetError, check_dataset

ATTEMPTS = 2  # a run whose network was not faithful is done once more; the first is kept in its folder `earlier`


class Refusal(RuntimeError):
    """The experiment cannot be run here as asked; nothing was created. The message has the remedy."""


class Interrupted(BaseException):
    """Ctrl-C, or a polite signal to end."""


@dataclass(frozen=True)
class Options:
    """How to run."""

    results: Path = Path("results")
    share: bool = False  # do not wait for another run on this machine
    force: bool = False  # run beyond the machine's measured ceiling
    resume: bool = False  # keep the complete runs of an earlier try
    listen_port: int | None = None  # serve the API on this port of the loopback too


def run_experiment(path: Path, options: Options, console: Console) -> Path:
    """Run every run of an experiment file; return the results folder."""
    experiment = spec.load(path)
    runs = expand(experiment)
    check(experiment, runs)
    _check_port(options.listen_port)
    with MachineLock(options.share, lambda text: console.print(text, style="yellow", soft_wrap=True)) as lock:
        if not options.force:
            check_ceiling(runs, console)
        folder = _experiment_folder(experiment, runs, path, options, console)
        progress = Progress(console, len(runs))
        try:
            with _signals_raise():
                for number, run in enumerate(runs, 1):
                    _run_until_believed(number, run, folder, options, lock, progress)
        finally:
            progress.close()
            give_to_caller(folder)
    return folder


def check(experiment: Experiment, runs: list[Run]) -> None:
    """Refuse, with every reason at once, what cannot be run here."""
    reasons = list(spec.unsupported(experiment))
    try:
        machine.require_emulation()
    except machine.MachineError as error:
        reasons.append(str(error))
    reasons += _dataset_problems(runs)
    reasons += _transport_problems(runs)
    if reasons:
        raise Refusal("\n".join(reasons))


def _transport_problems(runs: list[Run]) -> list[str]:
    known = machine.congestion_controls()
    wanted = {run.experiment.transport.congestion_control for run in runs}
    return [f"transport.congestion_control: this kernel has no {name}; it has {', '.join(known)}" for name in sorted(wanted - set(known))]


def _dataset_problems(runs: list[Run]) -> list[str]:
    wanted = {(w["dataset"], w["data_dir"]) for run in runs if (w := run.experiment.workload.to_job())["kind"] == "train"}
    problems = []
    for name, data_dir in sorted(wanted, key=str):
        try:
            check_dataset(name, data_dir)
        except DatasetError as error:
            problems.append(str(error))
    return problems


def _check_port(port: int | None) -> None:
    """Refuse a port for the API that cannot be had, before anything is begun."""
    if port:
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as error:
                raise Refusal(f"--listen {port}: {error.strerror or error}; choose another port") from error


def check_ceiling(runs: list[Run], console: Console) -> None:
    """Refuse what would ask more of the switches than this machine was measured to carry (call it with the machine to oneself)."""
    kernel = machine.has_kernel_datapath()
    problems = {}
    for run in runs:
        topology = run.experiment.topology
        load_bps, mtu = ring_load_bps(run.experiment.network(run.seed)), topology.resolved_mtu()
        try:
            ceiling_bps = machine.ceiling_bps(mtu, kernel, lambda text: console.print(text, soft_wrap=True))
        except machine.MachineError as error:
            raise Refusal(str(error)) from error
        if load_bps > ceiling_bps:
            problems[load_bps] = (
                f"{run.slug}: the workers could ask {load_bps / 1e6:.0f} Mbit/s of the switches, and this machine carries "
                f"{ceiling_bps / 1e6:.0f} at MTU {mtu}: lower the rates, raise topology.mtu, or run with --force, which marks the run"
            )
    if problems:
        raise Refusal("\n".join(problems.values()))


def _experiment_folder(experiment: Experiment, runs: list[Run], path: Path, options: Options, console: Console) -> Path:
    folder = options.results / experiment.name
    resolved = spec.resolved(experiment)
    if folder.exists():
        before = read_json(folder / "experiment.json") or {}
        if options.resume and before.get("spec") != resolved:
            raise Refusal(f"{folder} holds another version of this experiment: run without --resume to start anew (the old folder is kept)")
        if not options.resume:
            kept = _free_name(folder)
            folder.rename(kept)
            console.print(f"the earlier results are kept in {kept}", soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "schema": SCHEMA,
        "name": experiment.name,
        "spec": resolved,
        "file": path.read_text(),
        "planned": [run.slug for run in runs],
        "command": shlex.join(["testbed", *sys.argv[1:]]),
    }
    write_json(folder / "experiment.json", content)
    return folder


def _free_name(folder: Path) -> Path:
    """Name an earlier results folder by when it was made."""
    made = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    name = f"{folder.name}.{made:%Y%m%dT%H%M%S}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder.with_name(name)).exists())


def _run_until_believed(number: int, run: Run, folder: Path, options: Options, lock: MachineLock, progress: Progress) -> None:
    before = read_json(folder / run.slug / "manifest.json") or {}
    if options.resume and before.get("status") == "complete":
        progress.begin(number, run.slug)
        progress.end("already there", "dim")
        return
    earlier: list[dict[str, Any]] = []
    for attempt in range(1, ATTEMPTS + 1):
        progress.begin(number, run.slug if attempt == 1 else f"{run.slug} (again)")
        manifest = _run_once(run, folder, options, lock, progress, earlier)
        if manifest["valid"] or not (manifest["status"] == "complete" or manifest.get("verification_failed")):
            return
        earlier.append({"attempt": attempt, **{key: manifest[key] for key in ("status", "reason", "invalid_reasons")}})


def _run_once(
    run: Run, folder: Path, options: Options, lock: MachineLock, progress: Progress, earlier: list[dict[str, Any]]
) -> dict[str, Any]:
    plan = _plan(run, folder / run.slug)
    record = RunFolder(folder / run.slug, _first_manifest(run, plan, options, earlier))
    watcher = Watcher(record.stream, len(plan.network.hosts), plan.workload["budget"])
    began = time.time()
    try:
        tell = backend.Tell(progress.stage, lambda: progress.update(watcher.state()))
        backend.execute(plan, record, tell, options.listen_port)
        judged = judge(plan, record)
        record.to_parquet(judged["origin_mono_s"])
        record.save(**judged, status="complete", finished=_now(), shared_machine=lock.was_shared(began))
        record.drop_stream()
    except (backend.RunFailed, Unjudgeable) as failure:
        unverified = isinstance(failure, backend.NotFaithful)
        reasons = [str(failure) if unverified else "the run failed"]
        record.save(status="failed", reason=str(failure), invalid_reasons=reasons, verification_failed=unverified, finished=_now())
        progress.end(f"failed: {failure}", "red")
        return record.manifest
    except (Interrupted, KeyboardInterrupt):
        record.save(status="failed", reason="interrupted by the user", invalid_reasons=["the run was interrupted"], finished=_now())
        raise
    except BaseException as error:  # a fault of ours, or a full disk: the folder says so too
        record.save(status="failed", reason=f"{type(error).__name__}: {error}", invalid_reasons=["the run failed"], finished=_now())
        raise
    _tell_end(record.manifest, progress)
    return record.manifest


def _tell_end(manifest: dict[str, Any], progress: Progress) -> None:
    fidelity = manifest["fidelity"]["value"]
    text = f"{manifest['workers'][0]['steps']} steps, fidelity {'not tested (no backlog)' if fidelity is None else f'{fidelity:.3f}'}"
    if manifest["valid"]:
        progress.end(f"done: {text}", "green")
    else:
        progress.end(f"INVALID: {text}; {'; '.join(manifest['invalid_reasons'])}", "red")


def _plan(run: Run, run_dir: Path) -> RunPlan:
    topology = run.experiment.topology
    mtu = topology.resolved_mtu()
    transport = run.experiment.transport
    return RunPlan(
        run=run.slug,
        run_dir=str(run_dir.resolve()),
        network=run.experiment.network(run.seed).with_queues_fixed(mtu),
        mtu=mtu,
        transport={"congestion_control": transport.congestion_control, "ecn": transport.ecn},
        kernel_datapath=machine.has_kernel_datapath(),
        seed=run.seed,
        routing=asdict(run.experiment.routing.policy(run.seed)),
        scheme=run.scheme.params,
        workload=run.experiment.workload.to_job(),
    )


def _first_manifest(run: Run, plan: RunPlan, options: Options, earlier: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "experiment": run.experiment_name,
        "run": run.slug,
        "scheme": run.scheme.slug,
        "scheme_label": run.scheme.label,
        "cell": run.cell,
        "repeat": run.repeat,
        "seed": run.seed,
        "spec": spec.resolved(run.experiment),
        "network": {**asdict(replace(plan.network, routes=())), "mtu": plan.mtu},
        "command": shlex.join(["testbed", *sys.argv[1:]]),
        "started": _now(),
        "versions": machine.versions(),
        "git_commit": machine.git_commit(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "substituted": [],
        "forced": options.force,
        "shared_machine": options.share,
        "steered": False,
        "earlier_attempts": earlier,
        "runner": this_process(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn the signals that ask a program to end into an exception, so that the folder is marked."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
