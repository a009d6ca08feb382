"""Trials of the SDN controller on a real emulated network; each runs in a sandbox of its own, by `scenarios.play`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from typing import Any

from tests.emulation.scenarios import boot

PING_GAP_S = 0.005


def fabric(leaves: int, spines: int, workers: int, rate_bps: float = 20e6, delay_s: float = 0.0) -> Any:
    """Describe a leaf-spine network."""
    from topologies import LinkSpec, leafspine

    return leafspine(workers, leaves, spines, LinkSpec(rate_bps, delay_s), LinkSpec(2 * rate_bps))


class Pings:
    """Pings from one host to another in a thread, while other things happen."""

    def __init__(self, network: Any, source: str, target: str, count: int) -> None:
        self._network, self._source, self._target, self._count = network, source, target, count
        self.answered = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        from testbed.emulation.namespaces import network_namespace
        from testbed.emulation.ping import ping

        with network_namespace(self._network.host_pids[self._source]):
            address = self._network.address(self._target)
            self.answered = len(ping([address], self._count, PING_GAP_S, 1.0)[address])

    def wait(self) -> int:
        """Return how many were answered."""
        self._thread.join()
        return self.answered


def hear_until(network: Any, event: str, timeout_s: float) -> list[dict[str, Any]]:
    """Collect what the controller says until it says this."""
    heard: list[dict[str, Any]] = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for message in network.control.poll():
            if "paths" in message:
                network.note_routes(message["paths"])
            heard.append(message)
        if any(message["event"] == event for message in heard):
            return heard
        time.sleep(0.005)
    raise AssertionError(f"the controller never said {event}: {heard}")


def flows(switch: str) -> list[str]:
    """Return a switch's rules, counters left out."""
    dumped = subprocess.run(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", switch], capture_output=True, text=True)
    return sorted(line.strip().partition("cookie=")[2] for line in dumped.stdout.splitlines() if "cookie=" in line)


def nothing_but_rules() -> dict[str, Any]:
    """See that the switches answer ARP themselves, flood nothing, and drop what no rule allows."""
    from testbed.emulation.namespaces import network_namespace
    from testbed.emulation.ping import ping
    from topologies import LinkSpec, dumbbell

    network = boot(dumbbell(4, LinkSpec(20e6), LinkSpec(50e6)), 1500)
    with network_namespace(network.host_pids["h2"]):
        listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        listener.bind((network.interface("h2"), 0))
        listener.setblocking(False)
    with network_namespace(network.host_pids["h1"]):
        for other in ("h2", "h3", "h4"):
            subprocess.run(["ip", "neigh", "del", network.address(other), "dev", network.interface("h1")], check=True)
        answered = {h: len(ping([network.address(h)], 5, 0.01, 1.0)[network.address(h)]) for h in ("h3", "h4")}
        learnt = subprocess.run(["ip", "neigh", "show", network.address("h3")], capture_output=True, text=True).stdout
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sender.bind((network.interface("h1"), 0))
        mac = {h: bytes.fromhex(network.mininet[h].MAC().replace(":", "")) for h in ("h1", "h2", "h3")}
        for destination in (b"\xff" * 6, bytes.fromhex("01005e000001"), bytes.fromhex("02aaaaaaaaaa")):
            sender.send(destination + mac["h1"] + b"\x08\x00" + bytes(60))  # broadcast, multicast, unknown
        sender.send(mac["h2"] + mac["h3"] + b"\x08\x00" + bytes(60))  # as if from h3, by h1's port: on nobody's path
    time.sleep(0.2)
    overheard = 0
    while True:
        try:
            listener.recv(2000)
            overheard += 1
        except BlockingIOError:
            break
    return {"answered": answered, "h3_is_at": learnt.split("lladdr ")[1].split()[0], "overheard": overheard}


def controller_killed() -> dict[str, Any]:
    """Kill the controller while pings go on, and again after it was replaced; compare rules before and after."""
    network = boot(fabric(2, 2, 4), 1500)
    first = network.control.pid
    before = {switch: flows(switch) for switch in network.description.switches}
    pings = Pings(network, "h1", "h3", 600)
    time.sleep(0.5)
    os.kill(first, signal.SIGKILL)
    killed = time.monotonic()
    heard = hear_until(network, "installed", 10)
    back_s = time.monotonic() - killed
    answered = pings.wait()
    after = {switch: flows(switch) for switch in network.description.switches}
    uplink = network.description.path("h1", "h3")[1]
    set_link(network, uplink, "down")
    rerouted = hear_until(network, "rerouted", 5)[-1]
    return {
        "answered": answered,
        "events": [message["event"] for message in heard],
        "back_s": back_s,
        "new_process": network.control.pid != first,
        "rules": sum(map(len, before.values())),
        "same_rules": {s: [f.partition(",")[2] for f in fs] for s, fs in before.items()}
        == {s: [f.partition(",")[2] for f in fs] for s, fs in after.items()},
        "stale_cookies": len({f.partition(",")[0] for fs in after.values() for f in fs}) - 1,
        "rerouted": rerouted["link"] == uplink.link,
    }


def set_link(network: Any, direction: Any, state: str) -> None:
    """Take a fabric link down or up, at both of its switch ports."""
    for ends in ((direction.source, direction.target), (direction.target, direction.source)):
        subprocess.run(["ip", "link", "set", network.interface_between(*ends), state], check=True)


def link_down(spines: int) -> dict[str, Any]:
    """Take the link that h1 and h3 use down, and up again, while pings go on; there is another way only over another spine."""
    network = boot(fabric(2, spines, 4, delay_s=0.001), 1500)
    original = [direction.name for direction in network.description.path("h1", "h3")]
    pings = Pings(network, "h1", "h3", 400)
    time.sleep(0.5)
    direction = network.description.path("h1", "h3")[1]
    set_link(network, direction, "down")
    heard = hear_until(network, "rerouted", 5)
    time.sleep(0.5)
    heard += network.control.poll()
    lost = 400 - pings.wait()
    detour = [one.name for one in network.description.path("h1", "h3")] if spines > 1 else []
    set_link(network, direction, "up")
    back = hear_until(network, "rerouted", 5)
    time.sleep(0.3)  # vswitchd's cached flows follow its tables a moment later
    again = Pings(network, "h1", "h3", 20).wait()
    return {
        "link": direction.link,
        "events": [message["event"] for message in heard],
        "seconds": max(message["seconds"] for message in heard if message["event"] == "rerouted"),
        "events_back": [message["event"] for message in back],
        "unreachable": max(len(message["unreachable"]) for message in heard if message["event"] == "rerouted"),
        "lost_s": lost * PING_GAP_S,
        "original": original,
        "detour": detour,
        "restored": [one.name for one in network.description.path("h1", "h3")],
        "answered_again": again,
    }


def many_rules(leaves: int, spines: int, workers: int) -> dict[str, Any]:
    """Boot a large fabric and time the installation of its rules."""
    network = boot(fabric(leaves, spines, workers), 1500)
    rules = sum(len(flows(switch)) for switch in network.description.switches)
    return {"seconds": network.control.installation_s, "rules": rules, "switches": leaves + spines}


def select_groups(connections: int, spines: int) -> dict[str, Any]:
    """Open many TCP connections between two leaves, each carrying as much; return the shares of the spines."""
    from controller.routing import RoutingPolicy
    from testbed.emulation.counters import Counter
    from testbed.emulation.namespaces import network_namespace

    network = boot(fabric(2, spines, 2, rate_bps=50e6), 1500, routing=RoutingPolicy("groups", seed=1))
    uplinks = [
        queue for queue in network.queues if queue.direction.source == "l1" and queue.direction.target in network.description.switches
    ]
    counters = {queue.direction.target: Counter(queue) for queue in uplinks}
    with network_namespace(network.host_pids["h2"]):
        server = socket.create_server(("0.0.0.0", 7001), backlog=connections)
    before = {spine: counter.read().sent_packets for spine, counter in counters.items()}
    payload = bytes(14480)
    with network_namespace(network.host_pids["h1"]):
        for _ in range(connections):
            client = socket.create_connection((network.address("h2"), 7001))
            accepted, _ = server.accept()
            client.sendall(payload)
            left = len(payload)
            while left:
                left -= len(accepted.recv(left))
            client.close()
            accepted.close()
    time.sleep(0.2)
    packets = {spine: counter.read().sent_packets - before[spine] for spine, counter in counters.items()}
    shares = {spine: count / sum(packets.values()) for spine, count in packets.items()}
    return {"shares": shares, "pings": Pings(network, "h1", "h2", 20).wait()}
