"""What this machine can emulate, measured: python -m testbed.emulation.trial WHAT user|kernel

Boots a small network in a sandbox and prints one JSON object. WHAT is `qdiscs` (do the queues work?), `netem` (is it there?), `delay` (how
exactly is a delay of 5 ms kept?) or MTU@RATE (does a bottleneck of that rate, in bit/s, deliver it when every worker sends?).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import numpy as np

from testbed.emulation import sandbox
from testbed.emulation.counters import Counter, realtime
from testbed.emulation.delay import has_netem
from testbed.emulation.fidelity import Floats, fidelity, worst_of
from testbed.emulation.iperf import send, serve, udp_options
from testbed.emulation.network import EmulatedNetwork, Queue, Transport
from testbed.emulation.roundtrips import measure_rtts
from testbed.emulation.usage import Stolen
from topologies import LinkSpec, dumbbell, star
from topologies.load import ring_hops

FLOWS = 4
FLOW_START_S = 0.5
QUEUES_FILL_WITHIN_S = 2.0  # of flows that start slowly, as the first ones after installation do
FLOW_SECONDS = 1.0
LONGEST_FLOW_S = 30
OVERLOAD = 1.1
CEILING_DELAY_S = 0.005
LEAST_FIDELITY = 0.985
LEAST_COVERAGE = 0.3
WATCH_INTERVAL_S = 0.002
TRIAL_DELAY_S = 0.005


def carries(rate_bps: float, mtu: int, kernel_datapath: bool) -> dict[str, Any]:
    """Overload a dumbbell's bottleneck both ways by a ring of UDP flows; tell whether it still delivers its rate, and what was seen."""
    description = dumbbell(FLOWS, LinkSpec(rate_bps, CEILING_DELAY_S), LinkSpec(2 * rate_bps)).with_queues_fixed(mtu)
    network = EmulatedNetwork(description, mtu, Transport(), kernel_datapath, seed=1, log_dir=sandbox.PRIVATE_DIR)
    measure_rtts(network)
    flows = []
    for path in ring_hops(description):
        source, target = path[0].source, path[-1].target
        serve(network, target)
        flows.append(send(network, source, target, *udp_options(mtu, OVERLOAD * rate_bps), "-t", str(LONGEST_FLOW_S)))
    queues = [queue for queue in network.queues if queue.direction.bottleneck]
    _await_backlog(queues)
    time.sleep(FLOW_START_S)
    stolen = Stolen()
    with realtime():
        samples = watch_queues(queues, FLOW_SECONDS)
    stolen_share = stolen.share()
    for flow in flows:
        flow.kill()
    judged = [fidelity(*columns) for columns in samples]
    delivered = worst_of(judged).value if all(one.value is not None for one in judged) else None
    coverage = min(one.coverage for one in judged)
    return {
        "carried": delivered is not None and delivered >= LEAST_FIDELITY and coverage >= LEAST_COVERAGE,
        "delivered": delivered,
        "coverage": coverage,
        "stolen": stolen_share,
    }


def _await_backlog(queues: list[Queue]) -> None:
    """Wait until every queue is filling; not for long, as it never is where the machine cannot bring that much traffic up to it."""
    deadline = time.monotonic() + QUEUES_FILL_WITHIN_S
    for queue in queues:
        counter = Counter(queue)
        while not counter.read().backlog_bytes and time.monotonic() < deadline:
            time.sleep(WATCH_INTERVAL_S)
        counter.close()


def watch_queues(queues: list[Queue], seconds: float) -> list[Floats]:
    """Sample queues every 2 ms; return for each (time, sent bytes, backlog, rate), as `fidelity` takes them."""
    counters = [Counter(queue) for queue in queues]
    rows: list[list[tuple[float, int, int, float]]] = [[] for _ in queues]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for queue, counter, samples in zip(queues, counters, rows, strict=True):
            if (reading := counter.timed()) is not None:
                at, sample = reading
                samples.append((at, sample.sent_bytes, sample.backlog_bytes, queue.rate_bps))
        time.sleep(WATCH_INTERVAL_S)
    return [np.array(samples, dtype=np.float64).reshape(-1, 4).T for samples in rows]


def delay_accuracy(kernel_datapath: bool) -> dict[str, Any]:
    """Ping over a link of 5 ms each way, before calibration; tell by how much the RTT is over."""
    spec = LinkSpec(10e6, TRIAL_DELAY_S)
    description = star(2, spec, LinkSpec(10e6)).with_queues_fixed(1500)
    network = EmulatedNetwork(description, 1500, Transport(), kernel_datapath, seed=1, log_dir=sandbox.PRIVATE_DIR)
    rtts = measure_rtts(network)
    excess_s = statistics.median(rtt.measured_s - rtt.configured_s for rtt in rtts)
    return {"configured_rtt_s": rtts[0].configured_s, "excess_s": excess_s}


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
    mtu, rate_bps = what.split("@")
    return carries(float(rate_bps), int(mtu), kernel_datapath)


def main() -> None:
    """Run one named trial (qdiscs, netem, delay, or MTU@RATE) and print its result as JSON."""
    what, kernel_datapath = sys.argv[1], sys.argv[2] == "kernel"
    try:
        answer = {"result": _in_sandbox(what, kernel_datapath)}
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
