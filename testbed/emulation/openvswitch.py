"""A private Open vSwitch: started for one run, inside its sandbox, and gone with it.

OVS owns the queues of its ports: rates are set through OVSDB only (a direct `tc class change` is reverted at the next
reconfiguration). What OVSDB cannot say, the byte limit of a queue, is a bfifo leaf under OVS's class, which survives.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from testbed.emulation.descriptors import sockets_of
from testbed.emulation.ovsdb import Database
from testbed.emulation.sandbox import PRIVATE_DIR
from testbed.emulation.shaping import Shape, leaf

RUN_DIR = f"{PRIVATE_DIR}/openvswitch"
SCHEMA_FILE = "/usr/share/openvswitch/vswitch.ovsschema"
SOCKET_BUFFER_BYTES = 32 << 20
REALTIME_PRIORITY = 20

_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8


class OpenVSwitchError(RuntimeError):
    """Open vSwitch could not be started or configured."""


class OpenVSwitch:
    """The run's own ovsdb-server and ovs-vswitchd."""

    def __init__(self, kernel_datapath: bool) -> None:
        """Start both daemons; `kernel_datapath` tells whether vswitchd may use the kernel's."""
        os.makedirs(RUN_DIR, exist_ok=True)
        # Every OVS tool, Mininet's calls included, finds the private daemons by these.
        os.environ.update(OVS_RUNDIR=RUN_DIR, OVS_DBDIR=RUN_DIR, OVS_LOGDIR=RUN_DIR)
        # vswitchd allocates a batch of MTU-sized buffers per wake-up: memory given back at once would be faulted in anew.
        os.environ.update(MALLOC_TRIM_THRESHOLD_=str(1 << 30), MALLOC_TOP_PAD_=str(16 << 20), MALLOC_MMAP_THRESHOLD_=str(1 << 30))
        database = f"{RUN_DIR}/conf.db"
        _run("ovsdb-tool", "create", database, SCHEMA_FILE)
        daemon = ["--pidfile", "--detach", "--no-chdir", "--log-file"]
        _run("ovsdb-server", database, f"--remote=punix:{RUN_DIR}/db.sock", *daemon)
        _run("ovs-vsctl", "--no-wait", "init")
        _run("ovs-vswitchd", *daemon, *([] if kernel_datapath else ["--disable-system"]))
        self.pid = int(Path(f"{RUN_DIR}/ovs-vswitchd.pid").read_text())
        self._sockets: list[socket.socket] = []
        self._qos: dict[str, list[str]] = {}  # interface -> its rows in the database: QoS, then one a queue

    def shape(self, shapes: Iterable[Shape]) -> None:
        """Give every named port its HTB queues, each with its rates and byte limit."""
        shapes = list(shapes)
        if not shapes:
            return
        command: list[str] = []
        for i, shape in enumerate(shapes):
            numbers = range(len(shape.queues))
            queues = ",".join(f"{n}=@queue{i}.{n}" for n in numbers)
            command += ["--", "set", "port", shape.interface, f"qos=@qos{i}"]
            command += ["--", f"--id=@qos{i}", "create", "qos", "type=linux-htb", *_as_words(_qos_options(shape)), f"queues={queues}"]
            for n in numbers:
                command += ["--", f"--id=@queue{i}.{n}", "create", "queue", *_as_words(_queue_options(shape, n))]
        rows = iter(_run("ovs-vsctl", *command[1:]).split())
        for shape in shapes:
            self._qos[shape.interface] = [next(rows) for _ in range(1 + len(shape.queues))]
        waiting = {(shape.interface, n): queue.queue_bytes for shape in shapes for n, queue in enumerate(shape.queues)}
        deadline = time.monotonic() + 5
        while waiting:  # vswitchd has made its classes a moment after ovs-vsctl returns
            for (interface, n), queue_bytes in list(waiting.items()):
                done = subprocess.run(["tc", *leaf(interface, n, queue_bytes)], capture_output=True, text=True)
                if done.returncode == 0:
                    del waiting[interface, n]
                elif time.monotonic() > deadline:
                    raise OpenVSwitchError(f"Open vSwitch made no queue on {interface}: {done.stderr.strip()}")

    def change(self, shapes: Iterable[Shape]) -> None:
        """Change the rates of ports in place, all at once: their queues stay, and no packet is lost."""
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for shape in shapes:
            qos, *queues = self._qos[shape.interface]
            rows["QoS", qos] = _qos_options(shape)
            rows |= {("Queue", queue): _queue_options(shape, n) for n, queue in enumerate(queues)}
        if rows:
            self._database.set_options(rows)

    @cached_property
    def _database(self) -> Database:
        return Database(f"{RUN_DIR}/db.sock")

    def prepare_for_traffic(self, userspace_ports: int) -> list[str]:
        """Widen vswitchd's packet sockets and give it real-time priority; call it after a first frame has crossed a switch.

        The userspace datapath sends every port through one raw socket whose default buffer holds some 90 frames: with
        it, a full queue on one port loses the packets of all others, and no counter shows it. It opens that socket when it
        sends its first frame, so before that there is nothing to widen.
        """
        notes = []
        self._sockets = []
        for duplicate in sockets_of(self.pid):
            if duplicate.family == socket.AF_PACKET:
                self._sockets.append(duplicate)
            else:
                duplicate.close()
        if userspace_ports and len(self._sockets) <= userspace_ports:
            raise OpenVSwitchError(f"vswitchd has {len(self._sockets)} packet sockets for {userspace_ports} ports, and none to send by")
        for packet_socket in self._sockets:
            packet_socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
            packet_socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)
        try:
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
        except PermissionError:
            notes.append("vswitchd runs without real-time priority: this machine does not permit it")
        return notes

    def socket_drops(self) -> int:
        """Return how many frames vswitchd's packet sockets have dropped so far."""
        drops = 0
        for packet_socket in self._sockets:
            values = (ctypes.c_uint32 * 9).from_buffer_copy(packet_socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))
            drops += values[_MEMINFO_DROPS]
        return drops


def _qos_options(shape: Shape) -> dict[str, str]:
    return {"max-rate": str(round(shape.rate_bps))}


def _queue_options(shape: Shape, number: int) -> dict[str, str]:
    queue = shape.queues[number]
    return {"min-rate": str(round(queue.min_bps)), "max-rate": str(round(queue.max_bps)), "burst": str(queue.burst_bytes * 8)}


def _as_words(options: dict[str, str]) -> list[str]:
    return [f"other-config:{key}={value}" for key, value in options.items()]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OpenVSwitchError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
