"""Runs, seen from inside their sandboxes: python -m testbed.emulation.inside

Reads plans as JSON lines from standard input, and runs one after the other; lines that come while one is run are requests to pin a path.
Reports by JSON lines on standard output: booted, verified, started, controller (what the SDN controller said), condition (a link was
changed, background traffic began or ended), worker_failed, done, error; and last of each run `ended`, when nothing of its sandbox is
left. Everything else it makes goes into the run's folder. It ends, and everything with it, when the runner does.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from controller.routing import RoutingPolicy
from testbed.emulation import sampler, sampling, sandbox, usage
from testbed.emulation.background import Background
from testbed.emulation.child import Child, JsonLines, wait_for_any
from testbed.emulation.conditions import Conditions
from testbed.emulation.counters import VerificationError, drain
from testbed.emulation.network import EmulatedNetwork, Transport
from testbed.emulation.plan import RunPlan
from testbed.emulation.verify import verify
from testbed.emulation.workers import Workers
from testbed.processes import die_with_parent
from testbed.record import itself
from workloads import herald
from workloads.datasets import Dataset, DatasetError, load_dataset
from workloads.job import Job

MASTER_PORT = 29500
USAGE_INTERVAL_S = 0.5

Datasets = dict[tuple[str, str | None], Dataset]


class Inside:
    """The run's processes and what they report."""

    def __init__(self, plan: RunPlan, requests: JsonLines, datasets: Datasets | None = None, outer_proc: int = -1) -> None:
        """Boot the network and verify it, before there are workers; `datasets` are loaded already, containers seen in `outer_proc`."""
        self.plan = plan
        self.requests = requests
        self.run_dir = Path(plan.run_dir)
        self.logs = self.run_dir / "logs"
        self.stream = self.run_dir / "stream"
        self.workers = _workers(plan, self.logs, datasets or {}, outer_proc)
        began = time.monotonic()
        self.network = EmulatedNetwork(
            plan.network,
            plan.mtu,
            Transport(**plan.transport),
            plan.kernel_datapath,
            plan.seed,
            log_dir=str(self.logs),
            routing=RoutingPolicy.from_json(plan.routing),
            board=str(self.stream / "board.bin"),
            delayed=plan.timeline.delayed_links(),
            force_delay_line=plan.timeline.is_rough,
            dilation=plan.dilation,
            places=self.workers.places,
        )
        self.conditions = Conditions(self.network, plan.timeline, _tell_of_condition)
        self.background = Background(self.network, plan.timeline.flows, self.stream, self.logs, _tell_of_background)
        self.herald = JsonLines(herald.open_for_reading(self.stream))
        booted_s, control = time.monotonic() - began, self.network.control
        report(event="booted", seconds=booted_s, substituted=self.network.substituted, rules_s=control.installation_s, paths=control.paths)
        self.workers.wait_until_ready()
        verification = verify(self.network)
        report(event="verified", verification=verification.to_json(), transport=self.network.transport_settings())

    def run(self) -> int:
        """Run the workers to their end; return the exit code."""
        plan = self.plan
        self.background.prepare()
        self.sampler = Child("testbed.emulation.sampler", self.logs / "sampler.log")
        links = str(self.stream / "links.jsonl")
        intervals_s = sampling.intervals_s(plan.extremes)
        self.sampler.tell(sampler.job(self.network.queues, intervals_s, links, str(self.network.board.path), plan.dilation))
        self._start_workers()
        failed = self._watch()
        (self.stream / herald.PIPE).unlink(missing_ok=True)  # whoever copies the folder of a failed run wants files
        if failed is not None:
            report(event="worker_failed", **failed)
            return 3
        self.background.close()
        with suppress(VerificationError):  # a link may end the run down, with what was sent into it
            drain(self.network)
        self._note_usage()  # with nothing under way: what is still in a switch would count as lost
        self.sampler.stop()  # raises if it did not live to the end: fidelity would rest on part of the run
        report(event="done", marks=self.workers.close())
        return 0

    def _start_workers(self) -> None:
        """Write every job before the first worker starts: from then on there are others who write in the folder."""
        hosts = self.plan.network.hosts
        jobs = [self.stream / f"job-{rank}.json" for rank in range(len(hosts))]
        for rank, host in enumerate(hosts):
            job = Job(
                run=self.plan.run,
                rank=rank,
                world_size=len(hosts),
                master_addr=self.network.address(hosts[0]),
                master_port=MASTER_PORT,
                interface=self.network.interface(host),
                run_dir=self.plan.run_dir,
                seed=self.plan.seed,
                scheme=self.plan.scheme,
                device=self.workers.device(rank),
                workload=self.plan.workload,
                told_steps=self.plan.timeline.steps(),
                slowdowns=self.plan.slowdowns[rank],
                dilation=self.plan.dilation,
                telemetry=str(self.network.board.path),
            )
            job.save(jobs[rank])
        for rank, host in enumerate(hosts):
            self.workers.start(rank, jobs[rank], self.network.host_pids[host])

    def _watch(self) -> dict[str, Any] | None:
        """Take usage snapshots until every worker has ended; return the first that failed."""
        left = set(range(len(self.plan.network.hosts)))
        next_usage = time.monotonic()
        while left:
            due_s = min(next_usage, self.conditions.next_due_s, self.background.next_due_s())
            wait_for_any([*self.workers.lines, self.network.control.lines, self.requests, self.herald], due_s - time.monotonic())
            for told in self.herald.read(0):
                self._step_began(told["step"], told["mono_s"])
            self.conditions.act()
            self.background.act(time.monotonic())
            self._steer()
            for message in self.workers.hear():
                if message["event"] == "started":
                    report(event="started", rank=message["rank"])
                elif message["event"] == "exited":
                    left.discard(rank := message["rank"])
                    if message["code"] != 0:
                        return {"rank": rank, "code": message["code"], "why": message.get("why"), "log": f"logs/worker-{rank}.log"}
                elif message["event"] == "error":
                    raise RuntimeError(f"a worker could not be started: {message['text']}")
            if time.monotonic() >= next_usage:
                self.sampler.require_alive()
                self._note_usage()
                next_usage = time.monotonic() + USAGE_INTERVAL_S
        return None

    def _note_usage(self) -> None:
        with open(self.stream / "usage.jsonl", "a", opener=itself) as output:
            output.write(json.dumps(self._usage()) + "\n")

    def _step_began(self, step: int, mono_s: float) -> None:
        if step == 0:
            self.background.begin(mono_s)
        self.conditions.step_began(step, mono_s)

    def _steer(self) -> None:
        """Pass on what the controller says and what is asked of it."""
        for message in self.network.control.poll():
            if "paths" in message:
                self.network.note_routes(message["paths"])
            report(event="controller", message=message)
        for request in self.requests.read(0):
            self.network.control.pin(request["pin"]["id"], request["pin"]["path"])

    def _usage(self) -> dict[str, Any]:
        delay = self.network.delay
        line_pid = getattr(delay, "pid", None)
        processes = {
            "vswitchd": usage.folders(self.network.openvswitch.pid),
            "delayline": usage.folders(*([line_pid] if line_pid else [])),
            "sampler": usage.folders(self.sampler.pid),
            "controller": usage.folders(self.network.control.pid),
            "workers": self.workers.processes(),
            "background": usage.folders(*self.background.pids),
            "runner": [*usage.folders(os.getpid()), *self.workers.helpers()],
        }
        stats = delay.stats() if delay is not None else None
        network = self.network
        return usage.snapshot(processes, network.host_pids.values(), network.switch_ports(), network.openvswitch.socket_drops(), stats)


def _workers(plan: RunPlan, logs: Path, datasets: Datasets, outer_proc: int) -> Workers:
    if plan.containers is None:
        from testbed.emulation.forked import ProcessWorkers

        return ProcessWorkers(plan, logs, datasets)
    from testbed.containers.crew import ContainerWorkers

    workers = ContainerWorkers(plan, outer_proc)
    started = f"{len(workers.places)} containers started in {workers.seconds:.2f} s"
    _tell_of_condition(time.monotonic(), "containers_started", started, {"seconds": workers.seconds})
    return workers


def _tell_of_condition(mono_s: float, kind: str, text: str, data: dict[str, Any]) -> None:
    report(event="condition", mono_s=mono_s, kind=kind, text=text, data=data)


def _tell_of_background(kind: str, text: str, data: dict[str, Any]) -> None:
    _tell_of_condition(time.monotonic(), kind, text, data)


def report(**message: Any) -> None:
    """Tell the runner, by one JSON line."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the plans that come, each in a sandbox forked from here, until no more can come."""
    lines, datasets = JsonLines(sys.stdin.fileno()), Datasets()
    while not lines.ended:
        for message in lines.read(None):
            if "pin" not in message:  # that came too late for its run
                plan = RunPlan.from_json(message)
                _load(plan, datasets)
                report(event="ended", code=_run_in_sandbox(plan, datasets))


def _load(plan: RunPlan, datasets: Datasets) -> None:
    """Import and load what a run needs, once for all; data that cannot be loaded are the run's to tell."""
    if plan.containers is not None:
        importlib.import_module("testbed.containers.crew")  # Docker's client; torch and the data are the containers' own
        return
    importlib.import_module("testbed.emulation.forked")
    importlib.import_module("workloads.compression.registry")  # every codec: the next run may have another scheme
    workload = plan.workload
    if workload["kind"] == "train" and (key := (workload["dataset"], workload["data_dir"])) not in datasets:
        with suppress(DatasetError, OSError):
            datasets[key] = load_dataset(*key)


def _run_in_sandbox(plan: RunPlan, datasets: Datasets) -> int:
    """Run a plan in a process of its own; return its exit code when it and everything it made are gone."""
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _be_sandbox(plan, datasets, parent)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _be_sandbox(plan: RunPlan, datasets: Datasets, parent: int) -> NoReturn:
    code: Any = 1
    try:
        die_with_parent()
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
        os.dup2(os.open(f"{plan.run_dir}/logs/sandbox.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), sys.stderr.fileno())
        outer_proc = sandbox.enter()
        code = Inside(plan, JsonLines(sys.stdin.fileno()), datasets, outer_proc).run()
    except (RuntimeError, OSError) as error:
        report(event="error", kind=type(error).__name__, text=str(error))
    except SystemExit as left:  # by the process that stayed outside to wait
        code = left.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # process 1 takes everything with it: no other clean-up is needed or wanted


if __name__ == "__main__":
    main()
