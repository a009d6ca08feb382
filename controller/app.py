"""The os-ken side of the controller: connections, events in, messages out. What to do is the conductor's business.

Every event is handled by the one thread of this app's event loop, so nothing needs a lock: switches' messages come there by way of
os-ken, pins, the clock's ticks and what was put off as events of our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from socket import socket
from typing import Any

from os_ken.base.app_manager import AppManager, OSKenApp  # before os_ken.controller: they import each other
from os_ken.controller import ofp_event
from os_ken.controller.controller import Datapath
from os_ken.controller.event import EventBase
from os_ken.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, HANDSHAKE_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.controller.ofp_handler import OFPHandler
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3

from controller import openflow
from controller.board import Board
from controller.conductor import Conductor, Port
from controller.installation import Change
from controller.job import ControllerJob
from controller.openflow_counters import OpenFlowCounters
from controller.reporting import guarded, report

TICK_S = 1.0


class EventPin(EventBase):  # type: ignore[misc]
    """A pair of hosts is to be pinned to a path."""

    def __init__(self, number: int, path: object) -> None:
        """Note which request it is, and the path as it was asked for."""
        super().__init__()
        self.number = number
        self.path = path


class EventTick(EventBase):  # type: ignore[misc]
    """It is time to say that the event loop is alive, and to ask the switches for their counters."""


class EventLater(EventBase):  # type: ignore[misc]
    """It is time for what was put off."""

    def __init__(self, call: Callable[[], None]) -> None:
        """Note what it is."""
        super().__init__()
        self.call = call


class Connection(Datapath):  # type: ignore[misc]
    """os-ken's connection to a switch; one that breaks is noticed at once."""

    def _recv_loop(self) -> None:
        super()._recv_loop()
        self.send(b"", close_socket=True)  # os-ken waits for its sending thread, which waits for something to send

    _send_loop = guarded(Datapath._send_loop)


class SwitchWire:
    """The conductor's way to a switch."""

    def __init__(self, datapath: Any, generation: int) -> None:
        """Reach the switch over a connection."""
        self._datapath = datapath
        self._generation = generation

    def tell(self, change: Change, takes_over: bool) -> int:
        """Send a change in one write; return the number of its last barrier."""
        return openflow.send(self._datapath, openflow.messages(self._datapath, change, self._generation, takes_over))


class ControllerApp(OSKenApp):  # type: ignore[misc]
    """Hands events to the conductor."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, job: ControllerJob) -> None:
        """Get ready for switches."""
        super().__init__()
        self._generation = job.generation
        self._names = {switch.dpid: name for name, switch in job.switches.items()}
        self._datapaths: dict[str, Any] = {}  # of the switches that are connected
        self._groups_found: dict[str, set[int]] = {}
        self._counters = None if job.board is None else OpenFlowCounters(Board.open(job.board))
        self._conductor = Conductor(job, report, self._later)

    def start(self) -> None:
        """Begin to handle events."""
        super().start()
        hub.spawn(self._tick)

    def pin(self, number: int, path: object) -> None:
        """Ask for a path to be pinned; any thread may."""
        self.send_event(self.name, EventPin(number, path))

    @guarded
    def _tick(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + TICK_S, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            self.send_event(self.name, EventTick())

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        hub.spawn_after(seconds, guarded(self.send_event), self.name, EventLater(call))

    @set_ev_cls(EventPin)
    @guarded
    def _on_pin(self, event: EventPin) -> None:
        self._conductor.pin(event.number, event.path)

    @set_ev_cls(EventLater)
    @guarded
    def _on_later(self, event: EventLater) -> None:
        event.call()

    @set_ev_cls(EventTick)
    @guarded
    def _on_tick(self, event: EventTick) -> None:
        report(event="alive")
        if self._counters is not None:
            for datapath in self._datapaths.values():
                openflow.send(datapath, openflow.questions_on_counters(datapath))

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    @guarded
    def _on_state_change(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == DEAD_DISPATCHER:
            if self._is_current(datapath):
                name = self._names[datapath.id]
                del self._datapaths[name]
                self._conductor.left(name)
            return
        if datapath.id not in self._names:
            raise RuntimeError(f"a switch with the datapath id {datapath.id:#x} has connected, which is not in this network")
        name = self._names[datapath.id]
        self._datapaths[name] = datapath
        self._groups_found[name] = set()
        ports = {_interface(port): Port(port.port_no, openflow.is_up(port)) for port in list(datapath.ports.values())}
        self._conductor.joined(name, SwitchWire(datapath, self._generation), ports)
        openflow.send(datapath, openflow.questions_on_joining(datapath))

    @set_ev_cls(ofp_event.EventOFPGroupDescStatsReply, MAIN_DISPATCHER)
    @guarded
    def _on_groups(self, event: Any) -> None:
        if name := self._current_name(event):
            self._groups_found[name].update(group.group_id for group in event.msg.body)
            if openflow.is_complete(event.msg):
                self._conductor.groups_found(name, self._groups_found[name])

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    @guarded
    def _on_port_status(self, event: Any) -> None:
        if name := self._current_name(event):
            port = event.msg.desc
            is_gone = event.msg.reason == ofproto_v1_3.OFPPR_DELETE
            at = time.monotonic() - (time.time() - event.timestamp)  # when it came in, on our clock
            self._conductor.port_changed(name, _interface(port), None if is_gone else Port(port.port_no, openflow.is_up(port)), at)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    @guarded
    def _on_barrier(self, event: Any) -> None:
        if name := self._current_name(event):
            self._conductor.acknowledged(name, event.msg.xid)

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    @guarded
    def _on_port_counters(self, event: Any) -> None:
        if (name := self._current_name(event)) and self._counters is not None:
            self._counters.add_ports(name, event.msg.body)

    @set_ev_cls(ofp_event.EventOFPQueueStatsReply, MAIN_DISPATCHER)
    @guarded
    def _on_queue_counters(self, event: Any) -> None:
        if (name := self._current_name(event)) and self._counters is not None:
            self._counters.add_queues(name, event.msg.body)
            if openflow.is_complete(event.msg):
                self._counters.publish(name, self._conductor.neighbours(name), time.monotonic())

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [HANDSHAKE_DISPATCHER, CONFIG_DISPATCHER, MAIN_DISPATCHER])
    @guarded
    def _on_error(self, event: Any) -> None:
        switch = self._names.get(event.msg.datapath.id, "an unknown switch")
        raise RuntimeError(f"{switch} refused a message: {openflow.describe_error(event.msg)}")

    def _is_current(self, datapath: Any) -> bool:
        """Tell whether this is the connection a switch is reached by now, and not one that it has given up."""
        return datapath.id in self._names and self._datapaths.get(self._names[datapath.id]) is datapath

    def _current_name(self, event: Any) -> str | None:
        datapath = event.msg.datapath
        return self._names[datapath.id] if self._is_current(datapath) else None


def start(job: ControllerJob) -> ControllerApp:
    """Accept switches on the loopback from now on.

    os-ken's own start would listen on a thread where a port that is taken goes unnoticed. Its handler of the handshake is used, but never
    started: it is called by the connections directly.
    """
    manager = AppManager.get_instance()
    manager.instantiate(OFPHandler)
    app = manager.instantiate(ControllerApp, job)
    app.start()
    server = hub.StreamServer(("127.0.0.1", job.listen_port), _serve)
    hub.spawn(guarded(server.serve_forever))
    return app


@guarded
def _serve(connected: socket, address: tuple[str, int]) -> None:
    with suppress(OSError), closing(Connection(connected, address)) as connection:
        connection.serve()


def _interface(port: Any) -> str:
    name: str = port.name.decode()
    return name
