"""Boot a Network inside a sandbox: Mininet's nodes, veth links, Open vSwitch ports, shaped queues and delay elements.

Each direction of a link has its rate and byte-limited queue on the egress of its source: OVS's own HTB on a switch
port, an HTB of ours on a host's interface.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.link import Link as MininetLink
from mininet.net import Mininet
from mininet.node import OVSSwitch

from testbed.emulation.delay import DelayedDirection, DelayElement, DelayLineClient, Netem, has_netem
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.openvswitch import LEAF_HANDLE, OpenVSwitch, PortShape
from testbed.emulation.ping import ping
from testbed.emulation.wakefulness import stay_awake
from topologies import Direction, Network
from topologies import Link as LinkDescription
from topologies.mininet_topo import NetworkTopo
from topologies.model import ETHERNET_HEADER_BYTES

BURST_S = 0.5e-3
FIRST_FRAME_S = 1.0


@dataclass(frozen=True)
class Queue:
    """Where one shaped direction queues: an interface in a namespace (None: the sandbox's own)."""

    direction: Direction
    interface: str
    namespace_pid: int | None


@dataclass(frozen=True)
class Transport:
    """How every worker's TCP behaves, the same for all schemes."""

    congestion_control: str = "cubic"
    ecn: bool = False


class _Veth(MininetLink):
    """A cable: one veth pair, or two whose inner ends stay in the sandbox's own network, for a delay element to join."""

    def __init__(self, node1: Any, node2: Any, description: LinkDescription, inner: tuple[str, str] | None = None, **params: Any) -> None:
        self._inner = inner
        super().__init__(node1, node2, **params)

    def makeIntfPair(  # type: ignore[override]
        self, name1: str, name2: str, addr1: Any = None, addr2: Any = None, node1: Any = None, node2: Any = None, deleteIntfs: bool = True
    ) -> None:
        """Make the interfaces at once in the namespaces where they belong."""
        if self._inner is None:
            _veth(name1, node1, name2, node2)
        else:
            _veth(name1, node1, self._inner[0], None)
            _veth(name2, node2, self._inner[1], None)


class EmulatedNetwork:
    """A booted network."""

    def __init__(
        self,
        network: Network,
        mtu: int,
        transport: Transport,
        kernel_datapath: bool,
        seed: int,
        log_dir: str,
        force_delay_line: bool = False,
    ) -> None:
        """Boot everything; on return every queue is shaped, every delay holds and OVS is ready for traffic."""
        self.description = network
        self.mtu = mtu
        self.substituted: list[str] = []
        if not kernel_datapath:
            self.substituted.append("datapath: Open vSwitch in user space in place of the kernel's")
        self._awake = stay_awake()
        self.openvswitch = OpenVSwitch(kernel_datapath)
        self._set_ipv6_off()
        self._inner: dict[str, tuple[str, str]] = {}
        self.mininet = self._start_mininet(network, kernel_datapath)
        self.host_pids: dict[str, int] = {host: self.mininet[host].pid for host in network.hosts}
        self.openvswitch.never_forget(network.switches)
        self.queues = self._find_queues()
        self._set_mtu()
        for host in network.hosts:
            self._prepare_host(host, transport)
        self._shape()
        self.delay = self._delay(seed, log_dir, force_delay_line)
        if self.delay is not None and self.delay.substitution:
            self.substituted.append(self.delay.substitution)
        self._send_a_frame()
        self.substituted += self.openvswitch.prepare_for_traffic(0 if kernel_datapath else len(self.switch_ports()))

    def address(self, host: str) -> str:
        """Return a host's IP address."""
        ip: str = self.mininet[host].IP()
        return ip

    def interface(self, host: str) -> str:
        """Return the name of a host's only interface."""
        return f"{host}-eth0"

    def switch_ports(self) -> list[str]:
        """Return the interfaces of all switches."""
        return [queue.interface for queue in self.queues if queue.namespace_pid is None]

    def transport_settings(self) -> dict[str, Any]:
        """Read back what TCP uses on the first host, for the manifest."""
        host = self.description.hosts[0]
        names = ["tcp_ecn", "tcp_rmem", "tcp_wmem", "tcp_slow_start_after_idle", "tcp_sack", "tcp_timestamps"]
        with network_namespace(self.host_pids[host]):
            settings: dict[str, Any] = {name: Path(f"/proc/sys/net/ipv4/{name}").read_text().strip() for name in names}
            settings["route"] = _tool("ip", "route", "show").strip()
        return {**settings, "mtu": self.mtu}

    def _send_a_frame(self) -> None:
        """Make vswitchd open the socket it sends by."""
        first, second = self.description.hosts[:2]
        with network_namespace(self.host_pids[first]):
            ping([self.address(second)], count=1, interval_s=0.001, timeout_s=FIRST_FRAME_S)

    def _start_mininet(self, network: Network, kernel_datapath: bool) -> Mininet:
        Mininet.inited = True  # its init() would change the machine's sysctls

        def link(node1: Any, node2: Any, description: LinkDescription, **params: Any) -> _Veth:
            if description.is_delayed:
                number = len(self._inner)
                self._inner[description.name] = (f"d{number}a", f"d{number}b")
            return _Veth(node1, node2, description, self._inner.get(description.name), **params)

        def switch(name: str, **params: Any) -> OVSSwitch:
            return OVSSwitch(name, failMode="standalone", datapath="kernel" if kernel_datapath else "user", **params)

        mininet = Mininet(NetworkTopo(network=network), switch=switch, link=link, controller=None, ipBase="10.0.0.0/16")
        mininet.start()
        return mininet

    def _find_queues(self) -> list[Queue]:
        queues = []
        for direction in self.description.directions():
            source = self.mininet[direction.source]
            interface = source.connectionsTo(self.mininet[direction.target])[0][0].name
            queues.append(Queue(direction, interface, self.host_pids.get(direction.source)))
        return queues

    def _set_mtu(self) -> None:
        for queue in self.queues:
            with network_namespace(queue.namespace_pid):
                _tool("ip", "link", "set", queue.interface, "mtu", str(self.mtu))
        for pair in self._inner.values():
            for interface in pair:
                _tool("ip", "link", "set", interface, "mtu", str(self.mtu), "up")

    @staticmethod
    def _set_ipv6_off() -> None:
        # Router solicitations and the like would appear in the links' counters.
        for scope in ("all", "default"):
            setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            if setting.exists():
                setting.write_text("1")

    def _prepare_host(self, host: str, transport: Transport) -> None:
        interface = self.interface(host)
        with network_namespace(self.host_pids[host]):
            self._set_ipv6_off()
            # Frames in the queues are frames as on a wire; and a userspace switch cannot finish a checksum.
            _tool("ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off")
            Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1" if transport.ecn else "0")
            # Per route: a namespace may not choose an algorithm that the machine's list does not allow.
            route = ["10.0.0.0/16", "dev", interface, "proto", "kernel", "scope", "link", "src", self.address(host)]
            _tool("ip", "route", "change", *route, "congctl", transport.congestion_control)
            # No ARP on the measured network: a broadcast would be in every link's counters.
            for other in self.description.hosts:
                if other != host:
                    address, mac = self.address(other), self.mininet[other].MAC()
                    _tool("ip", "neigh", "replace", address, "lladdr", mac, "dev", interface, "nud", "permanent")

    def _shape(self) -> None:
        ports = []
        for queue in self.queues:
            spec = queue.direction.spec
            if spec.rate_bps is None or spec.queue_bytes is None:
                continue
            if queue.namespace_pid is None:
                ports.append(PortShape(queue.interface, spec.rate_bps, burst_bytes(spec.rate_bps, self.mtu), spec.queue_bytes))
            else:
                with network_namespace(queue.namespace_pid):
                    _shape_host(queue.interface, spec.rate_bps, burst_bytes(spec.rate_bps, self.mtu), spec.queue_bytes)
        self.openvswitch.shape(ports)

    def _delay(self, seed: int, log_dir: str, force_delay_line: bool) -> DelayElement | None:
        directions: list[DelayedDirection] = []
        for link in self.description.links:
            if link.name in self._inner:
                near, far = self._inner[link.name]
                for source, target, spec, entry, leave in (
                    (link.a, link.b, link.forward, near, far),
                    (link.b, link.a, link.backward, far, near),
                ):
                    name = f"{link.name}:{source}->{target}"
                    directions.append(DelayedDirection(name, entry, leave, spec, seed=seed * 1000 + len(directions)))
        if not directions:
            return None
        # netem's jitter reorders frames and its losses are in no counter we read: such links are the delay line's.
        simple = all(direction.spec.jitter_s == 0 and direction.spec.loss == 0 for direction in directions)
        if simple and not force_delay_line and has_netem():
            return Netem(directions)
        return DelayLineClient(directions, self.mtu, f"{log_dir}/delayline.log")


def burst_bytes(rate_bps: float, mtu: int) -> int:
    """Return the token bucket of a shaped direction: what half a millisecond carries, at least one frame.

    A timer that fires late must be made up for, or a busy machine never reaches the rate; more than this would let small
    payloads through at line speed, which flatters compression.
    """
    return max(mtu + ETHERNET_HEADER_BYTES, round(rate_bps / 8 * BURST_S))


def _shape_host(interface: str, rate_bps: float, burst: int, queue_bytes: int) -> None:
    rate = f"{round(rate_bps)}bit"
    _tool("tc", "qdisc", "add", "dev", interface, "root", "handle", "1:", "htb", "default", "1")
    _tool(
        "tc",
        "class",
        "add",
        "dev",
        interface,
        "parent",
        "1:",
        "classid",
        "1:1",
        "htb",
        "rate",
        rate,
        "ceil",
        rate,
        "burst",
        str(burst),
        "cburst",
        str(burst),
    )
    leaf = ["parent", "1:1", "handle", f"{LEAF_HANDLE:x}:", "bfifo", "limit", str(queue_bytes)]
    _tool("tc", "qdisc", "add", "dev", interface, *leaf)


def _veth(name1: str, node1: Any, name2: str, node2: Any) -> None:
    place1 = ["netns", str(node1.pid)] if node1 is not None and node1.inNamespace else []
    place2 = ["netns", str(node2.pid)] if node2 is not None and node2.inNamespace else []
    _tool("ip", "link", "add", "name", name1, *place1, "type", "veth", "peer", "name", name2, *place2)


def _tool(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
