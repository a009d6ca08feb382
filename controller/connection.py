"""One client's connection: HTTP read from its socket, answers and events written to it.

Nobody holds a connection by doing nothing: a request has to be whole within seconds, an answer to be taken within seconds.
"""

from __future__ import annotations

import io
import select
import socket
import threading
import time
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from controller.board import BoardError
from controller.handlers import EventStream, Handlers, Refused, Request, Response, body_length, check_host, event
from controller.openapi import EVENT_STREAM

REQUEST_TIMEOUT_S = 10.0  # for a whole request; also how long a connection may idle
SEND_TIMEOUT_S = 10.0
LINGER_S = 1.0  # how long, and
LINGER_BYTES = 1 << 20  # how much is still read from a client that was refused, so that it gets to read why


class _Incoming(io.RawIOBase):
    """Reads a socket against a deadline, however slowly the other side drips."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline_s = 0.0

    def allow(self, seconds: float) -> None:
        self._deadline_s = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Connection(BaseHTTPRequestHandler):
    """Serves one client, from its first request to its last: making it does it all."""

    protocol_version = "HTTP/1.1"
    server_version = "testbed"
    sys_version = ""
    headers: Message

    def __init__(self, connection: socket.socket, handlers: Handlers, closing: threading.Event) -> None:
        """Serve until the client leaves, idles, breaks HTTP, or `closing` is set and its reading side shut down."""
        self._handlers, self._closing = handlers, closing
        self._over_tcp = connection.family == socket.AF_INET
        self._by_loopback = self._over_tcp and connection.getsockname()[0].startswith("127.")
        super().__init__(connection, ("", 0), None)  # type: ignore[arg-type]  # it needs no server

    def setup(self) -> None:
        """Read by way of the deadline."""
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)
        if self._over_tcp:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def handle_one_request(self) -> None:
        """Answer one request, in time or not at all."""
        self._incoming.allow(REQUEST_TIMEOUT_S)
        super().handle_one_request()
        if self._closing.is_set():
            self.close_connection = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any method is answered, if only by 405
            return self._do
        raise AttributeError(name)

    def _do(self) -> None:
        try:
            if self._by_loopback:  # whoever serves other machines too is called by names of theirs
                check_host(self.headers)
            body = self._read_body(body_length(self.command, self.headers))
        except Refused as refusal:
            self._refuse(refusal)
            return
        answer = self._handlers.answer(Request(self.command, self.path, body, self.headers.get("Content-Type", "")))
        if isinstance(answer, EventStream):
            self._send_events(answer)
        else:
            self._send(answer)

    def _read_body(self, length: int) -> bytes:
        try:
            body = self.rfile.read(length)
        except TimeoutError:
            raise Refused(408, "the request's body did not arrive in time") from None
        if len(body) < length:
            raise Refused(400, f"the body ended after {len(body)} of {length} bytes")
        return body

    def _send(self, response: Response) -> None:
        self.connection.settimeout(SEND_TIMEOUT_S)
        self._begin(response.status, response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if response.allow:
            self.send_header("Allow", response.allow)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _begin(self, status: int, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")

    def _refuse(self, refusal: Refused) -> None:
        """Answer a request that was not read to its end, and read on a little: a reset would take the answer from the client."""
        self.close_connection = True
        self._send(refusal.response())
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self._incoming.allow(LINGER_S)
            left_bytes = LINGER_BYTES
            while left_bytes > 0 and (chunk := self.rfile.read1(1 << 16)):
                left_bytes -= len(chunk)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Tell in JSON what the standard library found wrong with a request."""
        if self.request_version in ("", "HTTP/0.9"):
            self.request_version = self.protocol_version  # it could not be read; 0.9 would be answered without headers
        if not getattr(self, "command", None):
            self.command = ""
        self._refuse(Refused(code, message or HTTPStatus(code).phrase))

    def _send_events(self, stream: EventStream) -> None:
        self.close_connection = True  # its end is the end of the answer
        self.connection.settimeout(SEND_TIMEOUT_S)
        self._begin(200, f"{EVENT_STREAM}; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(stream.first)
        next_s = time.monotonic() + stream.interval_s
        while self._wait(next_s):
            try:
                content = self._handlers.links_event()
            except BoardError as error:
                self.wfile.write(event("error", {"error": str(error)}))
                return
            self.wfile.write(content)
            next_s = max(next_s + stream.interval_s, time.monotonic())
        if self._closing.is_set():
            self.wfile.write(event("end", {"reason": "the run has ended"}))

    def _wait(self, until_s: float) -> bool:
        """Wait; False if the client has left or the API closes meanwhile."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN)
        while not self._closing.is_set() and (left_s := until_s - time.monotonic()) > 0:
            if poll.poll(left_s * 1e3) and not self.connection.recv(1 << 12):
                return False
        return not self._closing.is_set()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a run's screen is not for this."""
