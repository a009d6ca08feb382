"""Boot a Network inside a sandbox: Mininet's nodes, veth links, Open vSwitch ports, shaped queues and delay elements.

Each direction of a link has its rate and byte-limited queues on the egress of its source: OVS's own HTB on a switch
port, an HTB of ours on a host's interface. Switches forward what their controller told them to, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.net import Mininet
from mininet.node import Host, OVSSwitch

from controller.board import Board, QueueInfo
from controller.routing import RoutingPolicy
from testbed.emulation.cables import Veth
from testbed.emulation.controlplane import ControlPlane
from testbed.emulation.delay import DelayedDirection, DelayElement, DelayLineClient, Netem, has_netem
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.openvswitch import OpenVSwitch
from testbed.emulation.ping import ping
from testbed.emulation.places import Place, PlacedHost
from testbed.emulation.shaping import LEAF_HANDLE, filters, shape_host, shape_of, tool
from testbed.emulation.wakefulness import stay_awake
from topologies import Direction, Network, QueueClass
from topologies import Link as LinkDescription
from topologies.mininet_topo import NetworkTopo

FIRST_FRAME_S = 1.0
RTO_MIN_S = 0.2  # the kernel's own


@dataclass(frozen=True)
class Queue:
    """One queue of one direction: on an interface in a namespace (None: the sandbox's own)."""

    direction: Direction
    interface: str
    namespace_pid: int | None
    kind: QueueClass  # the direction's only one, or one of its classes
    number: int

    @property
    def name(self) -> str:
        """Name the queue as telemetry and records do."""
        return f"{self.direction.name}/{self.kind.name}" if self.kind.name else self.direction.name

    @property
    def handle(self) -> int:
        """Return the handle of its FIFO."""
        return LEAF_HANDLE + self.number

    @property
    def rate_bps(self) -> float:
        """Return the most it may send."""
        return self.kind.max_bps

    @property
    def queue_bytes(self) -> int:
        """Return its limit."""
        assert self.kind.queue_bytes is not None
        return self.kind.queue_bytes


@dataclass(frozen=True)
class Transport:
    """How every worker's TCP behaves, the same for all schemes."""

    congestion_control: str = "cubic"
    ecn: bool = False


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
        routing: RoutingPolicy | None = None,
        board: str | None = None,
        delayed: frozenset[str] = frozenset(),
        dilation: float = 1.0,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        """Boot everything; links named in `delayed` get a delay element though they may begin without delay, `places` are hosts already.

        On return every queue is shaped, every delay holds, every switch has its rules and OVS is ready for traffic.
        """
        self.control = ControlPlane(Path(log_dir) / "controller.log")
        self.description = network
        self._routing = routing or RoutingPolicy(seed=seed)
        self.mtu = mtu
        self.dilation = dilation
        self.substituted: list[str] = []
        if not kernel_datapath:
            self.substituted.append("datapath: Open vSwitch in user space in place of the kernel's")
        self._awake = stay_awake()
        self.openvswitch = OpenVSwitch(kernel_datapath)
        self._set_ipv6_off()
        self.calibration_s = 0.0
        self._inner: dict[str, tuple[str, str]] = {}
        self._places = places or {}
        self.mininet = self._start_mininet(network, kernel_datapath, delayed)
        self.host_pids: dict[str, int] = {host: self.mininet[host].pid for host in network.all_hosts}
        self._interfaces = self._find_interfaces()
        self.queues = self._find_queues()
        self._set_mtu()
        for host in network.all_hosts:
            self._prepare_host(host, transport)
        self._shape()
        self.delay = self._delay(seed, log_dir, force_delay_line)
        if self.delay is not None and self.delay.substitution:
            self.substituted.append(self.delay.substitution)
        self.board = Board.create(board or f"{log_dir}/board.bin", self._queue_infos(), [queue.rate_bps for queue in self.queues])
        self._take_control()
        self._send_a_frame()
        self.substituted += self.openvswitch.prepare_for_traffic(0 if kernel_datapath else len(self.switch_ports()))

    def address(self, host: str) -> str:
        """Return a host's IP address."""
        ip: str = self.mininet[host].IP()
        return ip

    def interface(self, host: str) -> str:
        """Return the name of a host's only interface."""
        return f"{host}-eth0"

    def entry(self, host: str) -> tuple[str, ...]:
        """Return what stands before a command that is to run in a host's file system, from within its network."""
        return self._places[host].entry if host in self._places else ()

    def interface_between(self, source: str, target: str) -> str:
        """Return the interface by which one node sends to its neighbour."""
        return self._interfaces[source, target]

    def switch_ports(self) -> list[str]:
        """Return the interfaces of all switches."""
        return [interface for (source, _), interface in self._interfaces.items() if source not in self.host_pids]

    def has_delay_element(self, direction: Direction) -> bool:
        """Tell whether a direction's delay, jitter and loss can be changed."""
        return direction.link in self._inner

    def held_s(self, delay_s: float | None) -> float | None:
        """Return how long a delay element is to hold frames for a delay: what switches and wake-ups add is taken off."""
        return max(0.0, delay_s - self.calibration_s) if delay_s else delay_s

    def note_routes(self, paths: list[list[str]]) -> None:
        """Follow the controller's paths: `description.path` tells them, and the board which of the workers' ring hops cross which queue.

        Under select groups TCP takes paths of its own, which nobody knows: the board then tells of no hops.
        """
        if self._routing.kind == "groups":
            return
        self.description = self.description.with_routes(paths)
        hops: Counter[tuple[str, int]] = Counter()
        hosts = self.description.hosts
        for i, host in enumerate(hosts):
            if (host, other := hosts[(i + 1) % len(hosts)]) in self.description.routed:
                for direction in self.description.path(host, other):
                    hops[direction.name, direction.spec.queue_of(host, other)] |= 1 << i
        for i, queue in enumerate(self.queues):
            self.board.set_hops(i, hops[queue.direction.name, queue.number])

    def transport_settings(self) -> dict[str, Any]:
        """Read back what TCP uses on the first host, for the manifest."""
        host = self.description.hosts[0]
        names = ["tcp_ecn", "tcp_rmem", "tcp_wmem", "tcp_slow_start_after_idle", "tcp_sack", "tcp_timestamps"]
        with network_namespace(self.host_pids[host]):
            settings: dict[str, Any] = {name: Path(f"/proc/sys/net/ipv4/{name}").read_text().strip() for name in names}
            settings["route"] = tool("ip", "route", "show").strip()
        return {**settings, "mtu": self.mtu}

    def _send_a_frame(self) -> None:
        """Make vswitchd open the socket it sends by."""
        first, second = self.description.hosts[:2]
        with network_namespace(self.host_pids[first]):
            ping([self.address(second)], count=1, interval_s=0.001, timeout_s=FIRST_FRAME_S)

    def _start_mininet(self, network: Network, kernel_datapath: bool, delayed: frozenset[str]) -> Mininet:
        Mininet.inited = True  # its init() would change the machine's sysctls

        def link(node1: Any, node2: Any, description: LinkDescription, **params: Any) -> Veth:
            if description.is_delayed or description.name in delayed:
                number = len(self._inner)
                self._inner[description.name] = (f"d{number}a", f"d{number}b")
            return Veth(node1, node2, description, self._inner.get(description.name), **params)

        def switch(name: str, **params: Any) -> OVSSwitch:
            return OVSSwitch(
                name,
                failMode="secure",
                datapath="kernel" if kernel_datapath else "user",
                protocols="OpenFlow13",
                reconnectms=None,
                **params,
            )

        def host(name: str, **params: Any) -> Host:
            return PlacedHost(name, self._places[name], **params) if name in self._places else Host(name, **params)

        mininet = Mininet(NetworkTopo(network=network), host=host, switch=switch, link=link, controller=None, ipBase="10.0.0.0/16")
        mininet.start()
        return mininet

    def _find_interfaces(self) -> dict[tuple[str, str], str]:
        """Return the interface of each direction, by its source and target."""
        found = {}
        for direction in self.description.directions():
            source = self.mininet[direction.source]
            found[direction.source, direction.target] = source.connectionsTo(self.mininet[direction.target])[0][0].name
        return found

    def _find_queues(self) -> list[Queue]:
        """Return every queue of the shaped directions, in the order of the board."""
        queues = []
        for direction in self.description.directions():
            interface = self._interfaces[direction.source, direction.target]
            for number, kind in enumerate(direction.spec.queues()):
                queues.append(Queue(direction, interface, self.host_pids.get(direction.source), kind, number))
        return queues

    def _queue_infos(self) -> list[QueueInfo]:
        return [
            QueueInfo(
                name=queue.name,
                link=queue.direction.link,
                source=queue.direction.source,
                target=queue.direction.target,
                queue=queue.kind.name,
                queue_bytes=queue.queue_bytes,
                delay_s=queue.direction.spec.delay_s,
                bottleneck=queue.direction.bottleneck,
            )
            for queue in self.queues
        ]

    def _take_control(self) -> None:
        ports: dict[str, dict[str, str]] = {switch: {} for switch in self.description.switches}
        for (source, target), interface in self._interfaces.items():
            if source in ports:
                ports[source][target] = interface
        hosts = {host: {"mac": self.mininet[host].MAC(), "ip": self.address(host)} for host in self.description.all_hosts}
        self.control.take_charge(self.description, self._routing, ports, hosts, self.board.path)
        self.note_routes(self.control.paths)

    def _set_mtu(self) -> None:
        for (source, _), interface in self._interfaces.items():
            with network_namespace(self.host_pids.get(source)):
                tool("ip", "link", "set", interface, "mtu", str(self.mtu))
        for pair in self._inner.values():
            for interface in pair:
                tool("ip", "link", "set", interface, "mtu", str(self.mtu), "up")

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
            tool("ethtool", "-K", interface, "tx", "off", "tso", "off", "gso", "off")
            Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1" if transport.ecn else "0")
            # Per route: a namespace may not choose an algorithm that the machine's list does not allow.
            route = ["10.0.0.0/16", "dev", interface, "proto", "kernel", "scope", "link", "src", self.address(host)]
            # TCP's timers go by the round trip and by this, so where time is dilated all of them do.
            slower = ["rto_min", f"{RTO_MIN_S * self.dilation * 1e3:.0f}ms"] if self.dilation != 1 else []
            tool("ip", "route", "change", *route, "congctl", transport.congestion_control, *slower)
            # No ARP on the measured network: a broadcast would be in every link's counters.
            others = [self.mininet[other] for other in self.description.all_hosts if other != host]
            lines = [f"neigh replace {other.IP()} lladdr {other.MAC()} dev {interface} nud permanent" for other in others]
            tool("ip", "-batch", "-", given="\n".join(lines))

    def _shape(self) -> None:
        addresses = {host: self.address(host) for host in self.description.all_hosts}
        ports = []
        for direction in self.description.directions():
            shape = shape_of(self._interfaces[direction.source, direction.target], direction.spec, self.mtu, self.dilation)
            if shape is None:
                continue
            if direction.source in self.host_pids:
                with network_namespace(self.host_pids[direction.source]):
                    shape_host(shape)
            else:
                ports.append(shape)
        self.openvswitch.shape(ports)
        for direction in self.description.directions():
            with network_namespace(self.host_pids.get(direction.source)):
                for arguments in filters(self._interfaces[direction.source, direction.target], direction.spec.classes, addresses):
                    tool("tc", *arguments)

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
        return DelayLineClient(directions, self.mtu, f"{log_dir}/delayline.log", self.dilation)
