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
from dataclasses import dataclass
from pathlib import Path

from testbed.emulation.sandbox import PRIVATE_DIR
from testbed.processes import libc

RUN_DIR = f"{PRIVATE_DIR}/openvswitch"
SCHEMA_FILE = "/usr/share/openvswitch/vswitch.ovsschema"
LEAF_HANDLE = 0x10  # handle of the bfifo leaf, "10:" in tc's notation
SOCKET_BUFFER_BYTES = 32 << 20
REALTIME_PRIORITY = 20

_SYS_PIDFD_GETFD = 438
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8


@dataclass(frozen=True)
class PortShape:
    """The shaping of one switch port's egress."""

    interface: str
    rate_bps: float
    burst_bytes: int
    queue_bytes: int


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

    def never_forget(self, switches: Iterable[str]) -> None:
        """Let learning switches keep what they learnt: a host that only receives would be flooded for after 5 minutes."""
        for switch in switches:
            _run("ovs-vsctl", "set", "bridge", switch, f"other-config:mac-aging-time={365 * 86400}")

    def shape(self, shapes: Iterable[PortShape]) -> None:
        """Give every named port one HTB queue of the given rate and byte limit."""
        shapes = list(shapes)
        if not shapes:
            return
        command: list[str] = []
        for i, shape in enumerate(shapes):
            rate = f"{round(shape.rate_bps)}"
            command += ["--", "set", "port", shape.interface, f"qos=@qos{i}"]
            command += ["--", f"--id=@qos{i}", "create", "qos", "type=linux-htb", f"other-config:max-rate={rate}", f"queues:0=@queue{i}"]
            options = {"min-rate": rate, "max-rate": rate, "burst": f"{shape.burst_bytes * 8}"}
            command += ["--", f"--id=@queue{i}", "create", "queue", *(f"other-config:{key}={value}" for key, value in options.items())]
        _run("ovs-vsctl", *command[1:])
        waiting = {shape.interface: shape for shape in shapes}
        deadline = time.monotonic() + 5
        while waiting:  # vswitchd has made its classes a moment after ovs-vsctl returns
            for interface, shape in list(waiting.items()):
                add = ["qdisc", "replace", "dev", interface, "parent", "1:1", "handle", f"{LEAF_HANDLE:x}:"]
                done = subprocess.run(["tc", *add, "bfifo", "limit", str(shape.queue_bytes)], capture_output=True, text=True)
                if done.returncode == 0:
                    del waiting[interface]
                elif time.monotonic() > deadline:
                    raise OpenVSwitchError(f"Open vSwitch made no queue on {interface}: {done.stderr.strip()}")

    def prepare_for_traffic(self, userspace_ports: int) -> list[str]:
        """Widen vswitchd's packet sockets and give it real-time priority; call it after a first frame has crossed a switch.

        The userspace datapath sends every port through one raw socket whose default buffer holds some 90 frames: with
        it, a full queue on one port loses the packets of all others, and no counter shows it. It opens that socket when it
        sends its first frame, so before that there is nothing to widen.
        """
        notes = []
        self._sockets = list(self._packet_sockets())
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

    def _packet_sockets(self) -> Iterable[socket.socket]:
        own = os.pidfd_open(self.pid)
        try:
            for entry in Path(f"/proc/{self.pid}/fd").iterdir():
                try:
                    if not os.readlink(entry).startswith("socket:"):
                        continue
                except OSError:
                    continue
                descriptor = libc.syscall(_SYS_PIDFD_GETFD, own, int(entry.name), 0)
                if descriptor < 0:
                    continue
                duplicate = socket.socket(fileno=descriptor)
                if duplicate.family == socket.AF_PACKET:
                    yield duplicate
                else:
                    duplicate.close()
        finally:
            os.close(own)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OpenVSwitchError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
