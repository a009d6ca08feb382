"""Small trials on a real emulated network, each run in a sandbox of its own.

`play(name, **arguments)` starts `python -m tests.emulation.scenarios` and returns the scenario's result; the functions below, and those of
other modules named so, run inside.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UDP_PORT = 7000
IP_UDP_BYTES = 28


def play(name: str, *, room: str = "scenarios", **arguments: Any) -> dict[str, Any]:
    """Run a scenario of a module of this folder in a sandbox; raise with its error output if it fails."""
    command = [sys.executable, "-m", "tests.emulation.scenarios", f"{room}.{name}", json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"scenario {name} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def teardown_s(workers: int) -> float:
    """Boot a network, kill the process that owns it, and return how long the machine took to be as before."""
    from tests.emulation.experiments import look_at_machine, start

    before = look_at_machine()
    process = start([sys.executable, "-m", "tests.emulation.scenarios", "scenarios.stand", json.dumps({"workers": workers})])
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert look_at_machine() != before
    began = time.monotonic()
    process.kill()
    process.wait()
    while look_at_machine() != before and time.monotonic() - began < 10:
        time.sleep(0.01)
    return time.monotonic() - began


def boot(description: Any, mtu: int, force_delay_line: bool = False, routing: Any = None, delayed: frozenset[str] = frozenset()) -> Any:
    from testbed import machine
    from testbed.emulation.network import EmulatedNetwork, Transport
    from testbed.emulation.sandbox import PRIVATE_DIR

    kernel = machine.has_kernel_datapath()
    fixed = description.with_queues_fixed(mtu)
    how = {"force_delay_line": force_delay_line, "routing": routing, "delayed": delayed}
    return EmulatedNetwork(fixed, mtu, Transport(), kernel, seed=1, log_dir=PRIVATE_DIR, **how)


def verified(kind: str, workers: int, rate_bps: float, delay_s: float, mtu: int, access_bps: float) -> dict[str, Any]:
    """Boot and verify a network, timing each part."""
    from testbed.emulation.usage import switch_lost
    from testbed.emulation.verify import verify
    from topologies import LinkSpec, dumbbell, star

    spec = LinkSpec(rate_bps, delay_s)
    began = time.monotonic()
    network = boot(star(workers, spec) if kind == "star" else dumbbell(workers, spec, LinkSpec(access_bps)), mtu)
    booted = time.monotonic()
    result = verify(network)
    total_s = time.monotonic() - began
    lost = switch_lost(network.switch_ports())
    time.sleep(delay_s + 0.1)
    return {
        "boot_s": booted - began,
        "total_s": total_s,
        **result.to_json(),
        "lost_afterwards": switch_lost(network.switch_ports()) - lost,
        "socket_drops": network.openvswitch.socket_drops(),
    }


def overloaded_dumbbell(workers: int, rate_bps: float, delay_s: float, mtu: int, access_bps: float, seconds: float) -> dict[str, Any]:
    """Send UDP from every left host to a right one, 1.4 times the bottleneck's rate in sum; watch the bottleneck's queue."""
    from testbed.emulation.counters import Counter, drain, realtime
    from testbed.emulation.fidelity import fidelity
    from testbed.emulation.roundtrips import measure_rtts
    from testbed.emulation.trial import watch_queues
    from testbed.emulation.usage import switch_lost
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(workers, LinkSpec(rate_bps, delay_s), LinkSpec(access_bps)), mtu)
    hosts = network.description.hosts
    measure_rtts(network)
    pairs = list(zip(hosts[: workers // 2], hosts[workers // 2 :], strict=True))
    receivers = [receiver_at(network, target) for _, target in pairs]
    forward = next(q for q in network.queues if q.direction.name == "bottleneck:s1->s2")
    uplinks = {q.direction.source: Counter(q) for q in network.queues if q.direction.source in hosts}
    counter = Counter(forward)
    lost_before = switch_lost(network.switch_ports())
    senders = [
        start_sender(network, source, network.address(target), mtu, 1.4 * rate_bps / len(pairs), seconds) for source, target in pairs
    ]
    with realtime():
        (columns,) = watch_queues([forward], seconds)
    sent = sum(int(sender.communicate()[0]) for sender in senders)
    drain(network)
    time.sleep(delay_s + 0.2)
    received = sum(_received(receiver) for receiver in receivers)
    judged = fidelity(*columns)
    lost = switch_lost(network.switch_ports()) - lost_before + sum(uplinks[source].read().dropped_packets for source, _ in pairs)
    return {
        **judged.to_json(),
        "largest_backlog_bytes": int(columns[2].max()),
        "queue_bytes": forward.queue_bytes,
        "sent": sent,
        "received": received,
        "lost": lost,
        "dropped": counter.read().dropped_packets,
        "socket_drops": network.openvswitch.socket_drops(),
    }


def stand(workers: int) -> dict[str, Any]:
    """Boot a dumbbell, say so, and stand until killed."""
    from topologies import LinkSpec, dumbbell

    boot(dumbbell(workers, LinkSpec(40e6, 0.005), LinkSpec(100e6)), 1500)
    print("up", flush=True)
    time.sleep(60)
    return {}


def full_queue_beside_pings() -> dict[str, Any]:
    """Fill the queue towards h2 to its brim while h3 pings h4 over the same switch."""
    from testbed.emulation.counters import Counter
    from testbed.emulation.namespaces import network_namespace
    from testbed.emulation.ping import ping
    from testbed.emulation.roundtrips import measure_rtts
    from testbed.emulation.usage import switch_lost
    from topologies import LinkSpec, star

    network = boot(star(4, LinkSpec(50e6), LinkSpec(5e6, queue_bytes=300_000)), 1500)
    measure_rtts(network)  # the switch learns where everybody is
    lost_before = switch_lost(network.switch_ports())
    receiver = receiver_at(network, "h2")
    down = Counter(next(q for q in network.queues if q.direction.name == "access-h2:s1->h2"))
    up = Counter(next(q for q in network.queues if q.direction.name == "access-h1:h1->s1"))
    sender = start_sender(network, "h1", network.address("h2"), 1500, 30e6, 2.0)
    time.sleep(0.3)
    with network_namespace(network.host_pids["h3"]):
        rtts = ping([network.address("h4")], 300, 0.004, 2.0)[network.address("h4")]
    largest = down.read().backlog_bytes
    sent = int(sender.communicate()[0])
    while down.read().backlog_bytes:
        time.sleep(0.01)
    time.sleep(0.2)
    lost = switch_lost(network.switch_ports()) - lost_before + up.read().dropped_packets
    return {
        "pings_answered": len(rtts),
        "backlog_bytes": largest,
        "sent": sent,
        "received": _received(receiver),
        "lost": lost,
        "dropped": down.read().dropped_packets,
        "socket_drops": network.openvswitch.socket_drops(),
    }


def delay_with(jitter_s: float, loss: float) -> dict[str, Any]:
    """Number frames over a link of 10 ms with jitter and loss; tell order, mean delay and losses."""
    from testbed.emulation.namespaces import network_namespace
    from topologies import LinkSpec, dumbbell

    spec = LinkSpec(20e6, 0.010, jitter_s=jitter_s, loss=loss)
    network = boot(dumbbell(2, spec, LinkSpec(50e6), bottleneck_back=LinkSpec(20e6)), 1500, force_delay_line=True)
    receiver = receiver_at(network, "h2")
    with network_namespace(network.host_pids["h1"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(2000):
        sender.sendto(struct.pack("!Id", number, time.monotonic()).ljust(600, b"\0"), (network.address("h2"), UDP_PORT))
        time.sleep(0.0005)
    time.sleep(0.2)
    numbers = []
    while True:
        try:
            numbers.append(struct.unpack_from("!I", receiver.recv(2000))[0])
        except BlockingIOError:
            break
    stats = network.delay.stats()["directions"]["bottleneck:s1->s2"]
    return {"received": len(numbers), "ordered": numbers == sorted(numbers), "lost": stats["lost"], "send_errors": stats["send_errors"]}


def interface_down_and_up() -> dict[str, Any]:
    """Take the far end of a delayed link down and up again; ping before, during and after."""
    from testbed.emulation.namespaces import network_namespace
    from testbed.emulation.ping import ping
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(2, LinkSpec(20e6, 0.002), LinkSpec(50e6)), 1500, force_delay_line=True)

    def answered() -> int:
        with network_namespace(network.host_pids["h1"]):
            return len(ping([network.address("h2")], 20, 0.01, 0.5)[network.address("h2")])

    before = answered()
    subprocess.run(["ip", "link", "set", "d0b", "down"], check=True)
    during = answered()
    errors = network.delay.stats()["directions"]["bottleneck:s1->s2"]["send_errors"]
    subprocess.run(["ip", "link", "set", "d0b", "up"], check=True)
    time.sleep(0.1)
    return {"before": before, "during": during, "send_errors": errors, "after": answered()}


def receiver_at(network: Any, host: str) -> socket.socket:
    from testbed.emulation.namespaces import network_namespace

    with network_namespace(network.host_pids[host]):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, 33, 256 << 20)  # SO_RCVBUFFORCE: nothing is lost here
    receiver.bind(("0.0.0.0", UDP_PORT))
    receiver.setblocking(False)
    return receiver


def _received(receiver: socket.socket) -> int:
    count = 0
    while True:
        try:
            receiver.recv(65535)
        except BlockingIOError:
            return count
        count += 1


def start_sender(network: Any, host: str, address: str, mtu: int, rate_bps: float, seconds: float) -> subprocess.Popen[str]:
    from testbed.emulation.counters import realtime
    from testbed.emulation.namespaces import network_namespace

    with network_namespace(network.host_pids[host]), realtime():  # inherited: a sender that is held up lets the queue run empty
        command = [sys.executable, __file__, "send", address, str(mtu - IP_UDP_BYTES), str(rate_bps), str(seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _send(address: str, payload_bytes: int, rate_bps: float, seconds: float) -> None:
    """Pace numbered UDP datagrams at an L2 rate; print how many left the socket."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, 32, 64 << 20)  # SO_SNDBUFFORCE: the queue drops, not the socket
    gap_s = (payload_bytes + IP_UDP_BYTES + 14) * 8 / rate_bps
    padding = bytes(payload_bytes - 4)
    began = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - began) < seconds:
        while sent * gap_s <= elapsed:
            sender.sendto(struct.pack("!I", sent) + padding, (address, UDP_PORT))
            sent += 1
        time.sleep(max(0.0, min(gap_s, 0.001)))
    print(sent)


def main() -> None:
    if sys.argv[1] == "send":
        _send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
        return
    from testbed.emulation import sandbox

    sandbox.enter()
    room, _, name = sys.argv[1].partition(".")
    scenario = getattr(importlib.import_module(f"tests.emulation.{room}"), name)
    print(json.dumps(scenario(**json.loads(sys.argv[2]))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
