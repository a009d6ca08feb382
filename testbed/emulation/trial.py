"""What this machine can emulate, measured: python -m testbed.emulation.trial

Boots small networks in a sandbox and prints one JSON object: the most traffic the switches carry (bit/s of switch traversals, by MTU),
whether netem is there, and how exactly a 5 ms delay is kept.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.emulation import sandbox
from testbed.emulation.delay import has_netem
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.network import EmulatedNetwork, Transport
from testbed.emulation.validity import ETHERNET_BYTES, HEADERS_BYTES
from testbed.emulation.verify import measure_rtts
from topologies import LinkSpec, star

FLOWS = 4
FLOW_SECONDS = 1.5
TRIAL_DELAY_S = 0.005
MTUS = (1500, 9000)


def ceiling_bps(mtu: int, kernel_datapath: bool) -> float:
    """Run a ring of TCP flows through one unshaped switch; return their sum as L2 bits per second."""
    network = EmulatedNetwork(star(FLOWS, LinkSpec(None)), mtu, Transport(), kernel_datapath, seed=1, log_dir=sandbox.PRIVATE_DIR)
    hosts = network.description.hosts
    for host in hosts:
        with network_namespace(network.host_pids[host]):
            subprocess.Popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
            _wait_for_listener(5201)
    clients = []
    for i, host in enumerate(hosts):
        with network_namespace(network.host_pids[host]):
            command = ["iperf3", "-c", network.address(hosts[(i + 1) % FLOWS]), "-t", str(FLOW_SECONDS), "-J"]
            clients.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    goodput_bps = 0.0
    for client in clients:
        goodput_bps += json.loads(client.communicate()[0])["end"]["sum_received"]["bits_per_second"]
    return goodput_bps * (mtu + ETHERNET_BYTES) / (mtu - HEADERS_BYTES)


def delay_accuracy(kernel_datapath: bool) -> dict[str, Any]:
    """Ping over a link of 5 ms each way, before calibration; tell by how much the RTT is over."""
    spec = LinkSpec(10e6, TRIAL_DELAY_S)
    description = star(2, spec, LinkSpec(10e6)).with_queues_fixed(1500)
    network = EmulatedNetwork(description, 1500, Transport(), kernel_datapath, seed=1, log_dir=sandbox.PRIVATE_DIR)
    rtts = measure_rtts(network)
    excess_s = statistics.median(rtt.measured_s - rtt.configured_s for rtt in rtts)
    return {"configured_rtt_s": rtts[0].configured_s, "excess_s": excess_s}


def _wait_for_listener(port: int) -> None:
    deadline = time.monotonic() + 5
    listening = re.compile(rf":{port:04X} 0+:0000 0A")
    while not any(listening.search(Path(f"/proc/thread-self/net/{name}").read_text()) for name in ("tcp", "tcp6")):
        if time.monotonic() > deadline:
            raise RuntimeError("iperf3 did not start listening")
        time.sleep(0.01)


def _in_sandbox(what: str, kernel_datapath: bool) -> Any:
    """Each trial gets a sandbox, and so an Open vSwitch, of its own."""
    sandbox.enter()
    if what == "netem":
        return has_netem()
    if what == "qdiscs":
        EmulatedNetwork(star(2, LinkSpec(10e6, queue_bytes=15000)), 1500, Transport(), kernel_datapath, seed=1, log_dir=sandbox.PRIVATE_DIR)
        return True
    if what == "delay":
        return delay_accuracy(kernel_datapath)
    return ceiling_bps(int(what), kernel_datapath)


def main() -> None:
    """Run one named trial (qdiscs, netem, delay, or an MTU) and print its result as JSON."""
    what, kernel_datapath = sys.argv[1], sys.argv[2] == "kernel"
    try:
        answer = {"result": _in_sandbox(what, kernel_datapath)}
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
