"""Serve the API over a unix socket and, when asked, TCP: listeners and threads.

A client has a thread of its own (`connection`), and their number is limited. What is answered is decided in `handlers`.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

from controller.connection import Connection
from controller.handlers import ControlError, Handlers, Source, to_json
from controller.openapi import JSON

__all__ = ["Api", "ApiError", "ControlError", "Source"]

SOCKET_MODE = 0o600  # its owner and root: who may connect may also change paths
MOST_CONNECTIONS = 32
CLOSE_TIMEOUT_S = 2.0
_TOO_MANY = to_json({"error": f"{MOST_CONNECTIONS} clients are connected already; try again later"})
_REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"


class ApiError(RuntimeError):
    """The API cannot be served as asked; the message says why."""


class Api:
    """The API of one run; it serves from `start` to `close`."""

    def __init__(self, source: Source, socket_path: Path, tcp: tuple[str, int] | None = None) -> None:
        """Bind the sockets, that of TCP to an address and port; ApiError if one cannot be had. Port 0 takes a free one: `tcp_port`."""
        self._handlers = Handlers(source)
        self._path = socket_path
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._acceptors: list[threading.Thread] = []
        self._listeners = [_listen_unix(socket_path)]
        self.tcp_port: int | None = None
        if tcp is not None:
            try:
                self._listeners.append(_listen_tcp(*tcp))
            except ApiError:
                self.close()
                raise
            self.tcp_port = self._listeners[-1].getsockname()[1]

    def start(self) -> None:
        """Serve from now on."""
        for listener in self._listeners:
            self._acceptors.append(threading.Thread(target=self._accept, args=(listener,), name="api-accept", daemon=True))
            self._acceptors[-1].start()

    def close(self) -> None:
        """End: streams get a last event, answers under way are finished, the socket's file is removed."""
        self._closing.set()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes its acceptor
        for acceptor in self._acceptors:
            acceptor.join(CLOSE_TIMEOUT_S)
        for listener in self._listeners:
            listener.close()
        self._path.unlink(missing_ok=True)
        with self._lock:
            left = dict(self._connections)
            for connection in left:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # wakes its thread, which may still write
        deadline_s = time.monotonic() + CLOSE_TIMEOUT_S
        for thread in left.values():
            thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:  # it was shut, or the client has left, or this process has too many files open
                self._closing.wait(0.1)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="api-connection", daemon=True)
            with self._lock:
                welcome = len(self._connections) < MOST_CONNECTIONS
                if welcome:
                    self._connections[connection] = thread
            if welcome:
                thread.start()
            else:
                _turn_away(connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            Connection(connection, self._handlers, self._closing)
        except Exception:  # whatever a client sends or does ends its own connection and nothing else
            pass
        finally:
            with self._lock:
                del self._connections[connection]
                connection.close()


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            reachable = f"/proc/self/fd/{folder}/{path.name}"  # the address of a unix socket has at most 108 bytes
            _remove_stale(reachable)
            os.fchmod(listener.fileno(), SOCKET_MODE)  # before it has a name: nobody can slip in
            listener.bind(reachable)
        finally:
            os.close(folder)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ApiError(f"the API cannot be served at {path}: {_reason(error)}") from error
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket of a server that was killed; one that answers stays, and so does any other file."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _listen_tcp(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        remedy = "; give another one with --listen" if getattr(error, "errno", None) == errno.EADDRINUSE else ""
        raise ApiError(f"the API cannot be served at {address}:{port}: {_reason(error)}{remedy}") from error
    return listener


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _turn_away(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.settimeout(0.1)
        connection.sendall(_REFUSAL % (JSON.encode(), len(_TOO_MANY), _TOO_MANY))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1 << 16)
