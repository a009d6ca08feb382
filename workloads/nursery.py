"""Start workers quickly: python -m workloads.nursery imports torch once, then forks a worker for every job it is sent.

It reads JSON lines on stdin and answers with JSON lines on stdout:

    {"preload": {"scheme": {...}, "dataset": name, "data_dir": null}}  -> {"event": "preloaded"}; scheme and dataset may be missing
    {"job": path, "netns_pid": pid or null, "log": path}               -> {"event": "started", "job": path, "pid": pid}
                                                                       -> {"event": "exited", "job": path, "pid": pid, "code": code}

A negative code is a signal. What cannot be done is answered with {"event": "error", "text": ...}. It ends when stdin
closes, and its workers with it. Nothing is computed before forking, so there are no threads to lose.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

# ruff: noqa: E402
gc.disable()  # importing makes objects that stay: looking for garbage among them again and again is a quarter of the time it takes

# OpenMP reads it when torch is loaded, and gloo's threads take it from there: a product computed by one thread here and by two
# there differs in its last bits, and then so do the replicas of schemes that compute with what arrives (PowerSGD).
os.environ.setdefault("OMP_NUM_THREADS", "1")

from workloads import eager

eager.import_torch()

from workloads import replay, training  # noqa: F401 - imported before forking, with torch
from workloads.datasets import Dataset, load_dataset
from workloads.job import Job
from workloads.schemes import resolve
from workloads.worker import run_worker

gc.freeze()  # and no worker looks through them again, which would also copy the memory it shares with the others
gc.enable()

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1


@dataclass
class Nursery:
    """The children and what was loaded for them."""

    children: dict[int, tuple[int, str]] = field(default_factory=dict)  # pidfd -> pid, job
    datasets: dict[tuple[str, str | None], Dataset] = field(default_factory=dict)
    selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def serve(self) -> None:
        """Answer requests until stdin closes."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the runner decides what ends
        self.selector.register(0, selectors.EVENT_READ)
        _say(event="ready")
        pending = b""
        try:
            while True:
                for key, _ in self.selector.select():
                    if key.fd != 0:
                        self._reap(key.fd)
                        continue
                    chunk = os.read(0, 1 << 16)
                    if not chunk:
                        return
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        self._obey(line)
        finally:
            for pid, _ in self.children.values():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def _obey(self, line: bytes) -> None:
        try:
            request = json.loads(line)
            if "preload" in request:
                self._preload(**request["preload"])
                _say(event="preloaded")
            else:
                self._start(request["job"], request.get("netns_pid"), request.get("log"), request.get("cpu_group"))
        except Exception as error:
            _say(event="error", request=line.decode(errors="replace"), text=f"{type(error).__name__}: {error}")

    def _preload(self, scheme: dict[str, Any] | None = None, dataset: str | None = None, data_dir: str | None = None) -> None:
        gc.disable()
        if scheme is not None:
            resolve(scheme).build()  # what it needs is imported then, compiled kernels too
        if dataset is not None and (dataset, data_dir) not in self.datasets:
            self.datasets[dataset, data_dir] = load_dataset(dataset, data_dir)
        gc.freeze()
        gc.enable()

    def _start(self, path: str, netns_pid: int | None, log: str | None, cpu_group: str | None) -> None:
        job = Job.load(path)
        dataset = self.datasets.get((job.workload.get("dataset", ""), job.workload.get("data_dir")))
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_worker(job, dataset, netns_pid, log, cpu_group, parent)
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = (pid, path)
        self.selector.register(pidfd, selectors.EVENT_READ)
        _say(event="started", job=path, pid=pid)

    def _reap(self, pidfd: int) -> None:
        pid, path = self.children.pop(pidfd)
        self.selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _say(event="exited", job=path, pid=pid, code=os.waitstatus_to_exitcode(status))


def _be_worker(job: Job, dataset: Dataset | None, netns_pid: int | None, log: str | None, cpu_group: str | None, parent: int) -> NoReturn:
    code = 1
    try:
        _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the nursery died before the line above
            os._exit(1)
        target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, fd in ((nothing, 0), (target, 1), (target, 2)):
            os.dup2(source, fd)
        if netns_pid is not None:
            join_network(netns_pid)
        if cpu_group is not None:
            Path(cpu_group, "cgroup.procs").write_text("0")  # 0: the process that writes it
        code = run_worker(job, dataset)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def join_network(pid: int) -> None:
    """Move this process into another's network namespace (os.setns exists only from Python 3.12 on)."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    try:
        _call("setns", fd, CLONE_NEWNET)
    finally:
        os.close(fd)


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def _say(**message: Any) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    Nursery().serve()
