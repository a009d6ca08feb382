"""Trials of the queues' telemetry on a real emulated network; each runs in a sandbox of its own, by `scenarios.play`."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.emulation.scenarios import UDP_PORT, boot, receiver_at

IPERF_PORT = 5201
BACKGROUND_DSCP = 8


class Recorder:
    """The run's own sampler at work on a network."""

    def __init__(self, network: Any, folder: Path) -> None:
        from testbed.emulation import sampler, sampling
        from testbed.emulation.child import Child

        self._output = folder / "links.jsonl"
        self._child = Child("testbed.emulation.sampler", folder / "sampler.log")
        self._child.tell(sampler.job(network.queues, sampling.intervals_s(network.description), str(self._output), str(network.board.path)))
        self.pid = self._child.pid
        time.sleep(0.5)

    def stop(self) -> list[dict[str, Any]]:
        """End it and return its rows."""
        self._child.stop()
        return [json.loads(line) for line in self._output.read_text().splitlines()]


def iperf(network: Any, source: str, target: str, seconds: float, *options: str, port: int = IPERF_PORT) -> Any:
    """Start an iperf3 flow; `communicate` gives its JSON."""
    from testbed.emulation.iperf import send, serve

    serve(network, target, port=port)
    return send(network, source, target, "-J", "-t", str(seconds), *options, port=port, output=subprocess.PIPE)


def counted_beside_iperf3(rate_bps: float, seconds: float) -> dict[str, Any]:
    """Compare what iperf3 says it moved with the queue's counters, by netlink and by OpenFlow."""
    from testbed.emulation.sandbox import PRIVATE_DIR
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(4, LinkSpec(rate_bps, 0.002), LinkSpec(2 * rate_bps)), 1500)
    recorder = Recorder(network, Path(PRIVATE_DIR))
    time.sleep(1.2)  # the first OpenFlow counters are from before the flow
    flow = iperf(network, "h1", "h3", seconds)
    told = json.loads(flow.communicate()[0])["end"]
    time.sleep(2.2)  # the last OpenFlow counters are up to a second old
    rows = [row for row in recorder.stop() if row["link"] == "bottleneck" and row["source"] == "s1"]
    counted = [row for row in rows if row.get("queue_tx_bytes") is not None]
    segment, frame = network.mtu - 52, network.mtu + 14
    retransmitted = told["sum_sent"]["retransmits"] * frame
    return {
        "wanted_bytes": told["sum_received"]["bytes"] / segment * frame + retransmitted,
        "netlink_bytes": rows[-1]["sent_bytes"] - rows[0]["sent_bytes"],
        "openflow_queue_bytes": counted[-1]["queue_tx_bytes"] - counted[0]["queue_tx_bytes"],
        "openflow_port_bytes": counted[-1]["port_tx_bytes"] - counted[0]["port_tx_bytes"],
        "openflow_readings": len(counted),
        "seconds": rows[-1]["mono_s"] - rows[0]["mono_s"],
        "samples": len(rows),
    }


def burst(rate_bps: float, access_bps: float, burst_bytes: int) -> dict[str, Any]:
    """Send one burst that the bottleneck's queue can hold; return its backlog over time, as recorded."""
    from testbed.emulation.counters import realtime
    from testbed.emulation.namespaces import network_namespace
    from testbed.emulation.sandbox import PRIVATE_DIR
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(2, LinkSpec(rate_bps, queue_bytes=2 * burst_bytes), LinkSpec(access_bps, queue_bytes=2 * burst_bytes)), 1500)
    receiver = receiver_at(network, "h2")
    recorder = Recorder(network, Path(PRIVATE_DIR))
    with network_namespace(network.host_pids["h1"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    frame = network.mtu + 14
    frames = burst_bytes // frame
    with realtime():  # one burst, not two with a pause between
        began = time.monotonic()
        for _ in range(frames):
            sender.sendto(bytes(network.mtu - 28), (network.address("h2"), UDP_PORT))
    time.sleep(burst_bytes * 8 / rate_bps + 0.5)
    rows = [row for row in recorder.stop() if row["link"] == "bottleneck" and row["source"] == "s1"]
    receiver.close()
    return {
        "sent_bytes": frames * frame,
        "trace": [(row["mono_s"] - began, row["backlog_bytes"], row["sent_bytes"]) for row in rows],
        "dropped": rows[-1]["dropped_packets"],
    }


def classes(rate_bps: float, seconds: float) -> dict[str, Any]:
    """Let marked and unmarked UDP compete on a link of two classes, then the marked one alone; return each class's rate."""
    from testbed.emulation.sandbox import PRIVATE_DIR
    from testbed.emulation.verify import verify
    from topologies import LinkSpec, QueueClass, dumbbell

    kinds = (
        QueueClass("training", 0.7 * rate_bps, rate_bps),
        QueueClass("background", 0.1 * rate_bps, 0.5 * rate_bps, dscp=BACKGROUND_DSCP),
    )
    network = boot(dumbbell(4, LinkSpec(rate_bps, 0.001, classes=kinds), LinkSpec(3 * rate_bps)), 1500)
    verification = verify(network)
    recorder = Recorder(network, Path(PRIVATE_DIR))
    overload = ["-u", "-b", str(rate_bps), "-l", str(network.mtu - 28)]
    marked = iperf(network, "h1", "h3", 2 * seconds, *overload, "-S", str(BACKGROUND_DSCP << 2))
    unmarked = iperf(network, "h2", "h4", seconds, *overload)
    unmarked.communicate()
    alone_from = time.monotonic() + 0.3
    marked.communicate()
    time.sleep(1.2)
    rows = [row for row in recorder.stop() if row["link"] == "bottleneck" and row["source"] == "s1"]

    def rate_of(kind: str, start_s: float, end_s: float) -> float:
        mine = [row for row in rows if row["queue"] == kind and start_s <= row["mono_s"] <= end_s]
        return (mine[-1]["sent_bytes"] - mine[0]["sent_bytes"]) * 8 / (mine[-1]["mono_s"] - mine[0]["mono_s"])

    openflow = {kind: max(row.get("queue_tx_bytes") or 0 for row in rows if row["queue"] == kind) for kind in ("training", "background")}
    sent = {kind: max(row["sent_bytes"] for row in rows if row["queue"] == kind) for kind in ("training", "background")}
    both_s = alone_from - 0.3
    return {
        "verified": {rate.direction: rate.measured_bps for rate in verification.rates},
        "together_bps": {kind: rate_of(kind, both_s - 0.6 * seconds, both_s - 0.2) for kind in ("training", "background")},
        "alone_bps": {kind: rate_of(kind, alone_from, alone_from + 0.5 * seconds) for kind in ("training", "background")},
        "openflow_bytes": openflow,
        "netlink_bytes": sent,
    }


def paired_throughput(rate_bps: float, seconds: float, repeats: int) -> dict[str, Any]:
    """Measure iperf3's goodput with telemetry on and off, in turn."""
    from testbed.emulation.sandbox import PRIVATE_DIR
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(8, LinkSpec(rate_bps, 0.002), LinkSpec(2 * rate_bps)), 1500)
    on, off = [], []
    for repeat in range(repeats):
        for telemetry in (True, False) if repeat % 2 else (False, True):
            recorder = Recorder(network, Path(PRIVATE_DIR)) if telemetry else None
            port = IPERF_PORT + len(on) + len(off)  # the server before may not be gone yet
            told = json.loads(iperf(network, "h1", "h5", seconds, "-O", "1", port=port).communicate()[0])["end"]
            (on if telemetry else off).append(told["sum_received"]["bits_per_second"])
            if recorder is not None:
                recorder.stop()
    return {"on_bps": on, "off_bps": off, "queues": len(network.queues)}
