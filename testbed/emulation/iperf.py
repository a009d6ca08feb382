"""iperf3 between the hosts of an emulated network: how it is started, and what it is told."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import IO

from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork
from topologies.model import ETHERNET_HEADER_BYTES

PORT = 5201  # iperf3's own
IP_UDP_HEADERS_BYTES = 28
LISTEN_TIMEOUT_S = 5.0

Output = IO[bytes] | int  # a file, or subprocess.PIPE or DEVNULL


def serve(
    network: EmulatedNetwork,
    host: str,
    *options: str,
    port: int = PORT,
    output: Output = subprocess.DEVNULL,
    errors: Output = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a server for one client on a host, and wait until it listens."""
    command = [*network.entry(host), "iperf3", "-s", "-1", "-p", str(port), *options]
    with network_namespace(network.host_pids[host]):
        server = subprocess.Popen(command, stdout=output, stderr=errors)
        deadline = time.monotonic() + LISTEN_TIMEOUT_S
        while not _listens(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"iperf3 did not start listening on port {port} of {host}")
            time.sleep(0.002)
    return server


def send(
    network: EmulatedNetwork,
    source: str,
    target: str,
    *options: str,
    port: int = PORT,
    output: Output = subprocess.DEVNULL,
    errors: Output = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a client on a host that sends to the server of another."""
    command = [*network.entry(source), "iperf3", "-c", network.address(target), "-p", str(port), *options]
    with network_namespace(network.host_pids[source]):
        return subprocess.Popen(command, stdout=output, stderr=errors)


def udp_payload_bytes(mtu: int) -> int:
    """Return what a UDP datagram that fills a frame carries."""
    return mtu - IP_UDP_HEADERS_BYTES


def udp_options(mtu: int, rate_bps: float) -> list[str]:
    """Return the options of a UDP flow in full frames; its rate counts L2 bits, as those of links do."""
    payload_bytes = udp_payload_bytes(mtu)
    payload_bps = rate_bps * payload_bytes / (mtu + ETHERNET_HEADER_BYTES)
    return ["-u", "-b", f"{payload_bps:.0f}", "-l", str(payload_bytes)]


def _listens(port: int) -> bool:
    """Tell whether somebody listens on a TCP port in the current network namespace."""
    listening = re.compile(rf":{port:04X} 0+:0000 0A")
    return any(listening.search(Path(f"/proc/thread-self/net/{name}").read_text()) for name in ("tcp", "tcp6"))
