"""A switch that speaks just enough OpenFlow 1.3 over a socket to be controlled, written without os-ken."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress

_HEADER = struct.Struct("!BBHI")
_PORT = struct.Struct("!I4x6s2x16sII24x")
_VERSION = 4
HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, FEATURES_REPLY = 0, 1, 2, 3, 5, 6
PORT_STATUS, FLOW_MOD, GROUP_MOD, MULTIPART_REQUEST, MULTIPART_REPLY, BARRIER_REQUEST, BARRIER_REPLY = 12, 14, 15, 18, 19, 20, 21
PORT_STATS, QUEUE_STATS, GROUP_DESC, PORT_DESC = 4, 5, 7, 13
LINK_DOWN = 1
PORT_MODIFIED = 2


class OpenFlowSwitch:
    """Connected to the controller on a loopback port from its making until `close`."""

    def __init__(self, listen_port: int, dpid: int, interfaces: Iterable[str]) -> None:
        self.dpid = dpid
        self.down: set[str] = set()
        self.flow_mods: list[bytes] = []
        self.counters = 0  # what every port and queue has sent, in bytes
        self._numbers = {interface: number + 1 for number, interface in enumerate(interfaces)}
        self._socket = socket.create_connection(("127.0.0.1", listen_port))
        self._sending = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def set_port(self, interface: str, up: bool) -> None:
        (self.down.discard if up else self.down.add)(interface)
        self._send(PORT_STATUS, 0, struct.pack("!B7x", PORT_MODIFIED) + self._port(interface))

    def complain(self, kind: int, code: int) -> None:
        self._send(ERROR, 0, struct.pack("!HH", kind, code) + bytes(64))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        self._send(HELLO, 0, b"")
        pending = b""
        with suppress(OSError):
            while chunk := self._socket.recv(1 << 16):
                pending += chunk
                while len(pending) >= _HEADER.size and len(pending) >= (length := _HEADER.unpack_from(pending)[2]):
                    self._answer(pending[:length])
                    pending = pending[length:]

    def _answer(self, message: bytes) -> None:
        _, kind, _, xid = _HEADER.unpack_from(message)
        if kind == FEATURES_REQUEST:
            self._send(FEATURES_REPLY, xid, struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0, 0))
        elif kind == MULTIPART_REQUEST:
            asked = struct.unpack_from("!H", message, _HEADER.size)[0]
            self._send(MULTIPART_REPLY, xid, struct.pack("!HH4x", asked, 0) + self._statistics(asked))
        elif kind == BARRIER_REQUEST:
            self._send(BARRIER_REPLY, xid, b"")
        elif kind == ECHO_REQUEST:
            self._send(ECHO_REPLY, xid, message[_HEADER.size :])
        elif kind == FLOW_MOD:
            self.flow_mods.append(message)

    def _statistics(self, asked: int) -> bytes:
        if asked == PORT_DESC:
            return b"".join(self._port(interface) for interface in self._numbers)
        if asked == PORT_STATS:
            sent = self.counters
            return b"".join(struct.pack("!I4x12QII", number, 0, 0, 0, sent, *[0] * 8, 0, 0) for number in self._numbers.values())
        if asked == QUEUE_STATS:
            return b"".join(struct.pack("!IIQQQII", number, 0, self.counters, 0, 0, 0, 0) for number in self._numbers.values())
        assert asked == GROUP_DESC
        return b""

    def _port(self, interface: str) -> bytes:
        number = self._numbers[interface]
        return _PORT.pack(number, bytes(6), interface.encode(), 0, LINK_DOWN if interface in self.down else 0)

    def _send(self, kind: int, xid: int, body: bytes) -> None:
        with self._sending:
            self._socket.sendall(_HEADER.pack(_VERSION, kind, _HEADER.size + len(body), xid) + body)
