"""The containers of one run, seen from inside its sandbox: every host is one, and those of workers hold a nursery.

The containers come first, then the network, whose hosts are in the containers' network namespaces, then the jobs. CPU is limited
only once torch is imported. All ends with the attachment: of this process, or of the engine's.

Workers write into the run's stream folder, and so does root, by name: nothing there may be a link that a worker has laid. So the folder
stays root's. Workers may write in it from the first job on, when all of root's own files are there; none of these can they remove (sticky).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from testbed.containers.container import Container, ContainerError, Errand
from testbed.containers.engine import connect
from testbed.containers.order import ContainerOrder
from testbed.emulation.child import JsonLines, Message, wait_for_any
from testbed.emulation.cpulimits import quota_and_period_us
from testbed.emulation.places import Place
from testbed.emulation.plan import RunPlan
from testbed.emulation.workers import READY_S
from workloads import herald
from workloads.job import preload_of

FIRST_CAUSE_S = 1.0  # in which the engine tells of a container's end
AT_ONCE = 8  # containers that are started at the same time
NURSERY = ["python", "-m", "workloads.nursery"]
IDLE = ["cat"]  # until its input ends
NAMES = "127.0.0.1 localhost\n::1 localhost\n"  # that containers know; they ask no server
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where commands are found, here and then in a container
BARE = ("env", "-i", f"PATH={PATH}", "HOME=/tmp", "setpriv", "--no-new-privs")  # nothing of root's goes along
READABLE = 0o644  # whatever root's umask is: workers are another user


class ContainerWorkers:
    """The workers of one run; see workers.Workers."""

    def __init__(self, plan: RunPlan, outer_proc: int) -> None:
        """Start all containers; processes in them are seen in `outer_proc`. Their threads are over on return."""
        self._plan, self._order = plan, ContainerOrder(**(plan.containers or {}))
        self._stream, self._logs = Path(plan.run_dir) / "stream", Path(plan.run_dir) / "logs"
        self._outer = Path(f"/proc/{os.getpid()}/fd/{outer_proc}")
        self._names = self._stream / "hosts"
        self._names.write_text(NAMES)
        self._names.chmod(READABLE)
        self._client = connect()
        hosts = plan.network.all_hosts
        began_s = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            started = list(pool.map(self._start_container, range(len(hosts)), hosts))
        self.seconds = time.monotonic() - began_s
        self._crew, self._idle = started[: len(plan.network.hosts)], started[len(plan.network.hosts) :]
        for container in self._crew:
            container.tell(preload_of(plan.scheme, plan.workload))
        self._ended: set[int] = set()
        self.places = {container.host: self._place(container) for container in started}

    @property
    def lines(self) -> Sequence[JsonLines]:
        """Return what the containers say; those for traffic say nothing, and end only if something is wrong."""
        return [container.lines for container in (*self._crew, *self._idle)]

    def wait_until_ready(self) -> None:
        """Wait until all have torch, the scheme's parts and the data in memory, then hold them to their processors."""
        deadline_s = time.monotonic() + READY_S
        for container in self._crew:
            container.wait_for("preloaded", deadline_s - time.monotonic())
        for container, cpus in zip(self._crew, self._plan.cpus, strict=True):
            if cpus is not None:
                container.limit_cpus(*quota_and_period_us(cpus, self._plan.dilation))

    def device(self, rank: int) -> str:
        """Return a GPU where the container was given one."""
        return "cuda" if self._order.gpus[rank] else "cpu"

    def start(self, rank: int, job: Path, netns_pid: int) -> None:
        """Have the worker forked in its container, whose network is the host's."""
        if rank == 0:
            self._give(self._stream / herald.PIPE)
            self._let_write(self._stream)
        job.chmod(READABLE)
        self._crew[rank].tell({"job": str(job), "log": str(self._log(rank))})

    def hear(self) -> list[Message]:
        """Return what the nurseries say; a container that ends with a worker at work is an end of the worker, with the engine's reason.

        A worker whose peer is gone fails too, and may be the first to tell: whoever's container ended is named before it. ContainerError
        if one for traffic has ended.
        """
        told = self._heard()
        if any(message.get("code") for message in told):
            deadline_s = time.monotonic() + FIRST_CAUSE_S
            while not any(message["event"] == "exited" and message["why"] for message in told) and time.monotonic() < deadline_s:
                wait_for_any(self.lines, deadline_s - time.monotonic())
                told += self._heard()
        return sorted(told, key=lambda message: not message.get("why"))

    def _heard(self) -> list[Message]:
        for container in self._idle:
            container.lines.read(0)
            if container.lines.ended:
                raise ContainerError(f"the container of {container.host} {container.why_it_ended()}")
        told: list[Message] = []
        for rank, container in enumerate(self._crew):
            for message in container.lines.read(0):
                if message["event"] == "exited":
                    self._ended.add(rank)
                    killed = message["code"] == -signal.SIGKILL
                    message["why"] = "ran out of the memory its container may use" if killed and container.ran_out_of_memory() else None
                told.append({**message, "rank": rank})
            if container.lines.ended and rank not in self._ended:
                self._ended.add(rank)
                told.append({"event": "exited", "rank": rank, "code": None, "why": f"is gone: its container {container.why_it_ended()}"})
        return told

    def processes(self) -> list[Path]:
        """Return what runs in the workers' containers."""
        return [self._outer / pid for container in self._crew for pid in (str(container.pid), *self._children(container.pid))]

    def helpers(self) -> list[Path]:
        """Return none: the nurseries are in the containers."""
        return []

    def close(self) -> dict[str, Any]:
        """Ask how long limits held workers back, and let the containers end."""
        limited = [(rank, cpus) for rank, cpus in enumerate(self._plan.cpus) if cpus is not None]
        told = [{"worker": rank, "cpus": cpus, "throttled_s": self._crew[rank].throttled_s()} for rank, cpus in limited]
        for container in (*self._crew, *self._idle):
            container.close()
        return {"cpu_limits": told}

    def _start_container(self, number: int, host: str) -> Container:
        order, is_worker = self._order, number < len(self._plan.network.hosts)
        client = connect()  # of this thread's own
        if not is_worker:
            return Container(client, order, Errand(host, IDLE, str(self._names), [], {}, []), self._logs / f"container-{host}.log")
        log = self._log(number)
        log.touch()
        self._give(log)
        gpus = order.gpus[number]
        errand = Errand(host, NURSERY, str(self._names), [str(self._stream), str(log)], _for_gpus(host) if gpus else {}, gpus)
        return Container(client, order, errand, self._logs / f"container-{host}.log")

    def _place(self, container: Container) -> Place:
        process = self._outer / str(container.pid)
        try:
            network, mounts = (os.open(process / "ns" / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in ("net", "mnt"))
            if container.id not in (process / "cgroup").read_text():  # after these are held: a number may come to mean another process
                raise OSError(f"process {container.pid} is another one's")
        except OSError as error:
            hint = "where the testbed itself is in a container, that one needs the machine's processes (pid: host)"
            what = container.why_it_ended() if container.pid == 0 else f"cannot be joined ({error}): {hint}"
            raise ContainerError(f"the container of {container.host} {what}") from error
        as_user = ("--setgid", str(self._order.group_id), "--setuid", str(self._order.user_id))
        return Place(network, (*BARE, "nsenter", f"--mount=/proc/{os.getpid()}/fd/{mounts}", *as_user))

    def _children(self, pid: int) -> list[str]:
        try:
            return (self._outer / str(pid) / "task" / str(pid) / "children").read_text().split()
        except OSError:  # it has ended
            return []

    def _log(self, rank: int) -> Path:
        return self._logs / f"worker-{rank}.log"

    def _give(self, path: Path) -> None:
        os.chown(path, self._order.user_id, self._order.group_id)

    def _let_write(self, folder: Path) -> None:
        os.chown(folder, -1, self._order.group_id)
        folder.chmod(0o1775)


def _for_gpus(host: str) -> dict[str, str]:
    """Keep NCCL on the emulated network: workers on one machine would go around it."""
    return {"NCCL_SOCKET_IFNAME": f"{host}-eth0", "NCCL_HOSTID": host, "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
