"""iperf3 flows that are connected before a run begins and wait, stopped, for their moment.

An iperf3 client needs several round trips before it sends, more for each flow, and gives up if a datagram of these is lost: on a congested
network a flow would begin late, or not at all. So it is connected while the network is quiet, and held just before it sends:

1. The server is stopped. The client connects (the server's kernel takes the connection), and waits for its first word.
2. A filter on the client's end of that connection drops one word only, the one to start. The server goes on; all streams are connected.
3. The server has sent that word. The client is stopped, the filter is taken off, and TCP sends the word again.
4. When its time has come the client is woken, finds the word, and sends at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from testbed.emulation.descriptors import sockets_of
from testbed.emulation.iperf import send, serve, udp_options
from testbed.emulation.network import EmulatedNetwork
from testbed.timeline import BackgroundFlow

TRIES = 12  # a link may lose a datagram that iperf3 does not send again
CONNECT_S = 2.0
CONNECT_ROUND_TRIPS = 8  # and one for each flow
WORD_S = 15.0  # TCP sends it again after 0.2 s, then after twice as long each time; all of it longer where time is dilated
POLL_S = 0.001
INTERVAL_S = 0.5
RECEIVE_BUFFER_BYTES = 4 << 20  # a server that waits for a CPU loses nothing
NO_DATA_TIMEOUT_MS = 86_400_000  # of the server: it may wait long for the first byte

_ESTABLISHED = 1
_SO_ATTACH_FILTER, _SO_DETACH_FILTER, _SO_RCVBUFFORCE = 26, 27, 33
_SIOCOUTQ = termios.TIOCOUTQ
_WORD_BYTES = 2  # TEST_START and TEST_RUNNING, one byte each
_TEST_START = 1
# Classic BPF, from the TCP header on: accept a segment without payload, else drop it if its first byte is TEST_START.
_DROP_THE_WORD = (
    (0x30, 0, 0, 12),  # A = byte 12, whose upper half is the header's length in words
    (0x54, 0, 0, 0xF0),
    (0x74, 0, 0, 2),  # A = length of the header in bytes
    (0x07, 0, 0, 0),  # X = A
    (0x80, 0, 0, 0),  # A = length of the segment
    (0x1D, 2, 0, 0),  # no payload: accept
    (0x50, 0, 0, 0),  # A = first byte of the payload
    (0x15, 1, 0, _TEST_START),
    (0x06, 0, 0, 0xFFFFFFFF),  # accept
    (0x06, 0, 0, 0),  # drop
)


T = TypeVar("T")


class NotConnected(RuntimeError):
    """A flow whose client and server did not come together."""


@dataclass(frozen=True)
class Logs:
    """What client and server say."""

    client: Path
    server: Path


def client_options(flow: BackgroundFlow, mtu: int) -> list[str]:
    """Return what an iperf3 client is told: to send until it is stopped, and to keep quiet about it."""
    options = ["-t", "0", "-i", "0", "-P", str(flow.flows)]
    if flow.protocol == "udp":
        assert flow.rate_bps is not None
        options += udp_options(mtu, flow.rate_bps)
    if flow.dscp is not None:
        options += ["-S", str(_tos(flow))]
    return options


def connected(network: EmulatedNetwork, flow: BackgroundFlow, port: int, logs: Logs) -> HeldFlow:
    """Connect a flow, trying again where a link lost what iperf3 needs."""
    for left in reversed(range(TRIES)):
        held = HeldFlow(network, flow, port, logs)
        try:
            held.connect()
            return held
        except NotConnected:
            held.end()
            if not left:
                raise
    raise AssertionError


class HeldFlow:
    """One client with all its flows, and its server."""

    def __init__(self, network: EmulatedNetwork, flow: BackgroundFlow, port: int, logs: Logs) -> None:
        """Start the server, stop it, and start the client."""
        self._network, self._flow, self._logs = network, flow, logs
        self.is_udp = flow.protocol == "udp"
        self.server_began_s = 0.0  # zero of the server's own clock
        self.senders: list[socket.socket] = []  # of TCP: both ends of its streams
        self.receivers: list[socket.socket] = []
        self._word: socket.socket | None = None
        with _log(logs.server) as server, _log(logs.client) as client:
            interval = str(INTERVAL_S) if self.is_udp else "0"
            options = ["-i", interval, "--forceflush", "--rcv-timeout", str(NO_DATA_TIMEOUT_MS)]
            self.server = serve(network, flow.target, *options, port=port, output=server, errors=server)
            _signal(self.server, signal.SIGSTOP)
            self.client = send(
                network, flow.source, flow.target, *client_options(flow, network.mtu), port=port, output=client, errors=client
            )

    @property
    def name(self) -> str:
        """Name the flows in words."""
        flow = self._flow
        return f"{flow.flows} {flow.protocol.upper()} flow{'s' * (flow.flows > 1)} from {flow.source} to {flow.target}"

    def connect(self) -> None:
        """Bring both to the point where the client only has to be woken; the word may still be under way (see `wait_for_word`)."""
        flow, network = self._flow, self._network
        timeout_s = CONNECT_S + (CONNECT_ROUND_TRIPS + flow.flows) * network.description.base_rtt_s(flow.source, flow.target)
        source_pid = network.host_pids[flow.source]
        replies = _datagrams_received(source_pid)
        self._word = self._until(self._control, timeout_s)
        _filter(self._word)
        _signal(self.server, signal.SIGCONT)
        control = self._until(lambda: self._has_sent_the_word(self._word), timeout_s)
        self.server_began_s = time.monotonic()
        control.close()
        if self.is_udp:  # to stop the client while it waits for a stream's reply would end it
            self._until(lambda: _datagrams_received(source_pid) >= replies + flow.flows or None, timeout_s)
        _signal(self.client, signal.SIGSTOP)
        self._until(lambda: _is_stopped(self.client.pid) or None, timeout_s)
        self._word.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self._take_streams(self._word.getsockname()[1])

    def wait_for_word(self) -> None:
        """Wait until the word to start lies before the client."""
        assert self._word is not None
        word = self._word
        self._until(lambda: _queued(word, termios.FIONREAD) >= _WORD_BYTES or None, WORD_S * self._network.dilation)
        word.close()
        self._word = None

    def release(self) -> None:
        """Let the client send."""
        _signal(self.client, signal.SIGCONT)

    def stop(self) -> None:
        """Let nothing more be sent. A TCP client's buffers are thrown away; a UDP client is kept, as its server would leave with it."""
        if self.is_udp:
            _signal(self.client, signal.SIGSTOP)
            return
        _signal(self.client, signal.SIGKILL)
        for sender in self.senders:
            sender.close()  # it was set to be reset, not to linger
        self.senders = []

    def kill(self) -> None:
        """End both at once. Until `end` nobody asks how they ended, so that their CPU time can still be read."""
        for process in (self.client, self.server):
            _signal(process, signal.SIGKILL)
        for one in (*self.senders, *self.receivers, *([self._word] if self._word else [])):
            one.close()
        self.senders, self.receivers, self._word = [], [], None

    def end(self) -> None:
        """End both, and wait until they are gone."""
        self.kill()
        for process in (self.client, self.server):
            process.wait()

    @property
    def has_ended(self) -> bool:
        """Tell whether the client has ended; it stays to be asked how."""
        return self.client.returncode is not None or os.waitid(os.P_PID, self.client.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def last_words(self) -> str:
        """Return the last line that the client said."""
        lines = self._logs.client.read_text(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line), "it said nothing")

    def _control(self) -> socket.socket | None:
        """Return the client's end of the control connection, once it stands; the client has no other as yet."""
        return _chosen(self.client, lambda one: one.type == socket.SOCK_STREAM and _state(one) == _ESTABLISHED)

    def _has_sent_the_word(self, word: socket.socket | None) -> socket.socket | None:
        """Return the server's end of the control connection if it holds two bytes that the client's kernel has not taken."""
        assert word is not None
        port = word.getsockname()[1]
        return _chosen(self.server, lambda one: _peer_port(one) == port and _queued(one, _SIOCOUTQ) >= _WORD_BYTES)

    def _take_streams(self, control_port: int) -> None:
        """Keep both ends of TCP's streams, for their counters, and mark them alike; widen the server's UDP buffers."""
        for one in sockets_of(self.client.pid):
            if one.type == socket.SOCK_STREAM and one.getsockname()[1] != control_port:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.senders.append(one)
            else:
                one.close()
        ports = {one.getsockname()[1] for one in self.senders}
        for one in sockets_of(self.server.pid):
            if one.type == socket.SOCK_DGRAM:
                one.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
            if _peer_port(one) in ports:
                one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _tos(self._flow))  # so that acknowledgements are in the same class
                self.receivers.append(one)
            else:
                one.close()
        if not self.is_udp and not len(self.senders) == len(self.receivers) == self._flow.flows:
            raise NotConnected(f"iperf3 has {len(self.senders)} streams for {self.name}")

    def _until(self, look: Callable[[], T | None], timeout_s: float) -> T:
        deadline = time.monotonic() + timeout_s
        while (found := look()) is None:
            if time.monotonic() > deadline or self.client.poll() is not None or self.server.poll() is not None:
                raise NotConnected(f"iperf3 could not connect {self.name}; see logs/background-*.log")
            time.sleep(POLL_S)
        return found


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal without asking whether the process has ended, as `Popen` does: an answer would take its CPU time away."""
    if process.returncode is None:
        os.kill(process.pid, number)


def _tos(flow: BackgroundFlow) -> int:
    return (flow.dscp or 0) << 2


def _log(path: Path) -> IO[bytes]:
    return path.open("ab")


def _chosen(process: subprocess.Popen[bytes], wanted: Callable[[socket.socket], bool]) -> socket.socket | None:
    """Return a process's first socket that is wanted, if it has one."""
    found = None
    for one in sockets_of(process.pid):
        if found is None and wanted(one):
            found = one
        else:
            one.close()
    return found


def _state(one: socket.socket) -> int:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


def _peer_port(one: socket.socket) -> int | None:
    try:
        return int(one.getpeername()[1])
    except OSError:  # it is connected to nobody
        return None


def _queued(one: socket.socket, request: int) -> int:
    """Return how many bytes wait to be read (FIONREAD) or to be acknowledged (SIOCOUTQ)."""
    return int(struct.unpack("i", fcntl.ioctl(one.fileno(), request, bytes(4)))[0])


def _filter(one: socket.socket) -> None:
    instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in _DROP_THE_WORD))
    program = struct.pack("HL", len(_DROP_THE_WORD), ctypes.addressof(instructions))
    one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _datagrams_received(pid: int) -> int:
    """Return how many UDP datagrams the programs of a network namespace have read."""
    titles, values = (line.split() for line in Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Udp:"))
    return int(values[titles.index("InDatagrams")])
