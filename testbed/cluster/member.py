"""What every rank does on its own machine when rank 0 asks: tell where it is, look around, run its share of a run."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from testbed import data, machine
from testbed.cluster.interfaces import address_of, address_towards, interface_of, is_loopback, mtu_of
from testbed.cluster.launch import Launch
from testbed.cluster.roster import Machine
from testbed.cluster.station import Station
from workloads.job import Job

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")


class Member:
    """One rank."""

    def __init__(self, launch: Launch, interface: str | None, folder: Path) -> None:
        """`interface` is the one the user named, if any; `folder` is this rank's own, on its own machine."""
        self.launch = launch
        self.folder = folder
        self._interface = interface or ""
        self._station: Station | None = None

    @property
    def station(self) -> Station:
        """Return where the work is done, once this rank has looked around."""
        assert self._station is not None
        return self._station

    def meet(self) -> dict[str, Any]:
        """Tell the address by which this machine reaches the store, and so rank 0's machine; none if it cannot tell."""
        try:
            return {"address": address_towards(self.launch.address)}
        except OSError:
            return {"address": None}

    def look(self, peers: list[str], datasets: list[tuple[str, str | None]], threads: int) -> Machine:
        """Find the interface, check the data sets, make ready; return what this machine is and what is wrong with it."""
        problems = data.problems(datasets)
        address, mtu = "", None
        try:
            self._interface = self._interface or self._facing(peers)
            address, mtu = address_of(self._interface), mtu_of(self._interface)
        except OSError as error:
            problems.append(str(error))
        if not problems:
            os.environ["GLOO_SOCKET_IFNAME"] = self._interface  # also where a job names none, as nothing can be counted on it
            self._station = Station(self.folder, threads)
        return Machine(
            host=platform.node(),
            interface=self._interface,
            address=address,
            mtu=mtu,
            congestion_control=CONGESTION_CONTROL.read_text().strip() if CONGESTION_CONTROL.exists() else None,
            device="cpu",
            threads=threads,
            kernel=platform.release(),
            cpus=os.cpu_count(),
            versions=machine.versions(),
            git_commit=machine.git_commit(),
            problems=tuple(problems),
        )

    def start(self, job: dict[str, Any], alone: list[int], run_dir: Path, log: Path) -> None:
        """Begin this rank's share of a run. Bytes on the wire are counted only where this rank is `alone` on its interface."""
        rank = self.launch.rank
        own = Job(**job, rank=rank, interface=self._interface if rank in alone else "", run_dir=str(run_dir))
        own.stream_dir.mkdir(parents=True, exist_ok=True)
        self.station.start(own, own.stream_dir / f"job-{rank}.json", log)

    def close(self) -> None:
        """End whatever works here."""
        if self._station is not None:
            self._station.close()

    def _facing(self, peers: list[str]) -> str:
        """Return the interface that faces the other machines, whose addresses are given."""
        address = address_towards(self.launch.address)
        if is_loopback(address) and peers:  # rank 0's machine, if it knows itself by the loopback
            address = address_towards(peers[0])
        return interface_of(address)
