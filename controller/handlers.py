"""What the API answers: a request goes in, a response comes out. No sockets, no files, no threads.

Whatever is asked, the answer is a response: bad input is told in a sentence as {"error": ...}, a fault of ours as status 500.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from email.message import Message
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError

from controller import metrics, openapi
from controller.board import BoardError, Entry
from controller.openapi import ENDPOINTS, JSON, LEAST_INTERVAL_S, MAX_BODY_BYTES, MOST_INTERVAL_S, USUAL_INTERVAL_S, PinRequest
from controller.telemetry import LinkState, link_state

_METHODS_WITH_BODY = {"POST", "PUT", "PATCH"}
_LOOPBACK_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,18}")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FIELDS = tuple(field.name for field in fields(LinkState))
_MOST_FAULTS_TOLD = 3
_MOST_SHOWN = 100  # characters of what a client sent
_MOST_SAID = 500  # characters of a sentence to a client


class ControlError(RuntimeError):
    """The controller does not answer."""


class Source(Protocol):
    """The run whose queues and paths the API shows; its methods are called by several threads at once."""

    def entries(self) -> list[Entry]:
        """Return every queue's record; BoardError if there is none to be had."""

    def topology(self) -> dict[str, Any]:
        """Return the network as `openapi.Topology` has it."""

    def paths(self) -> list[list[str]]:
        """Return the node path of every pair of hosts."""

    def pin(self, path: list[str]) -> str | None:
        """Pin a pair to a path: None when done, a sentence when refused; ControlError if the controller does not answer."""

    def run(self) -> dict[str, str]:
        """Return the names of the experiment and the run."""


@dataclass(frozen=True)
class Request:
    """What was asked: the target as it stood in the request line, and the body."""

    method: str
    target: str
    body: bytes = b""
    content_type: str = ""


@dataclass(frozen=True)
class Response:
    """What to answer."""

    status: int
    body: bytes
    content_type: str = JSON
    allow: str = ""  # methods, where another one was used


@dataclass(frozen=True)
class EventStream:
    """Answer with events until the client or the run has enough: `first` now, then `Handlers.links_event` every so often."""

    interval_s: float
    first: bytes


class Refused(Exception):
    """A request that is not answered as asked; the message is for the client."""

    def __init__(self, status: int, sentence: str, allow: str = "") -> None:
        """`allow` lists the methods where another one was used."""
        super().__init__(_at_most(_MOST_SAID, sentence))
        self.status, self.allow = status, allow

    def response(self) -> Response:
        """Tell the client."""
        return Response(self.status, to_json({"error": str(self)}), allow=self.allow)


def body_length(method: str, headers: Message) -> int:
    """Return how many bytes of body follow these headers; Refused if that is not plainly said, or too many."""
    if headers.defects:
        raise Refused(400, "a header line is malformed")
    if "Transfer-Encoding" in headers:
        raise Refused(411, "a body in chunks is not taken: send it with a Content-Length")
    lengths = headers.get_all("Content-Length", [])
    if not lengths:
        if method in _METHODS_WITH_BODY:
            raise Refused(411, f"a {method} needs a Content-Length")
        return 0
    if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0].strip()):
        raise Refused(400, "Content-Length must be given once, as a whole number of bytes")
    length = int(lengths[0])
    if length > MAX_BODY_BYTES:
        raise Refused(413, f"the body has {length} bytes; at most {MAX_BODY_BYTES} are taken")
    return length


def check_host(headers: Message) -> None:
    """Refuse a request that was sent to another name: a web page could make its own name mean this machine (DNS rebinding)."""
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1:
        raise Refused(400, "a request over TCP needs one Host header")
    if not _LOOPBACK_HOST.fullmatch(hosts[0].strip()):
        raise Refused(403, f"this answers to 127.0.0.1 and localhost only, not to {_shown(hosts[0])}")


class Handlers:
    """Answers requests about one run."""

    def __init__(self, source: Source, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` is the clock of the board's times."""
        self._source, self._now_s = source, now_s
        self._description = to_json(openapi.description())
        self._routes: dict[str, dict[str, Callable[[Request, dict[str, str]], Response | EventStream]]] = {
            "/": {"GET": self._index},
            "/links": {"GET": self._links},
            "/links/{id}": {"GET": self._link},
            "/stream": {"GET": self._stream},
            "/metrics": {"GET": self._metrics},
            "/topology": {"GET": self._topology},
            "/paths": {"GET": self._paths, "POST": self._pin},
            "/openapi.json": {"GET": self._openapi},
        }

    def answer(self, request: Request) -> Response | EventStream:
        """Answer; HEAD as GET, the caller leaves out the body."""
        try:
            return self._answer(request)
        except Refused as refusal:
            return refusal.response()
        except (BoardError, ControlError) as error:
            return Refused(503, str(error)).response()
        except Exception as error:
            return Refused(500, f"a fault of the testbed's own: {type(error).__name__}: {error}").response()

    def links_event(self) -> bytes:
        """Return an event of all queues; BoardError if there is none to be had."""
        return event("links", [self._message(entry) for entry in self._source.entries()])

    def _answer(self, request: Request) -> Response | EventStream:
        raw_path, _, query = request.target.partition("?")
        path = _decoded(raw_path)
        if not path.startswith("/"):
            raise Refused(400, "a request's target is a path that begins with /")
        given = {"id": path.removeprefix("/links/")} if path.startswith("/links/") else {}
        route = "/links/{id}" if given else path
        if route not in self._routes:
            raise Refused(404, f"there is no {_shown(path)}; GET / lists what there is")
        methods = self._routes[route]
        method = "GET" if request.method == "HEAD" else request.method
        if method not in methods:
            allow = ", ".join(["GET", "HEAD", *sorted(methods.keys() - {"GET"})])
            raise Refused(405, f"{_shown(request.method)} is not for {_shown(path)}; it takes {allow}", allow)
        return methods[method](request, given | _parameters(query, route, method))

    def _index(self, request: Request, given: dict[str, str]) -> Response:
        endpoints = {f"{one.method} {one.path}": one.summary for one in ENDPOINTS}
        return Response(200, to_json({**self._source.run(), "endpoints": endpoints}))

    def _links(self, request: Request, given: dict[str, str]) -> Response:
        return Response(200, to_json([self._message(entry) for entry in self._source.entries()]))

    def _link(self, request: Request, given: dict[str, str]) -> Response:
        for entry in self._source.entries():
            if entry.info.name == given["id"]:
                return Response(200, to_json(self._message(entry)))
        raise Refused(404, f"this run has no link {_shown(given['id'])}; GET /links lists them")

    def _stream(self, request: Request, given: dict[str, str]) -> EventStream:
        text = given.get("interval_s", str(USUAL_INTERVAL_S))
        try:
            interval_s = float(text)
        except ValueError:
            interval_s = math.nan
        if not LEAST_INTERVAL_S <= interval_s <= MOST_INTERVAL_S:
            raise Refused(400, f"interval_s is a number of seconds from {LEAST_INTERVAL_S} to {MOST_INTERVAL_S:g}, not {_shown(text)}")
        return EventStream(interval_s, self.links_event())

    def _metrics(self, request: Request, given: dict[str, str]) -> Response:
        text = metrics.exposition(self._source.entries(), self._source.run(), self._now_s())
        return Response(200, text, metrics.CONTENT_TYPE)

    def _topology(self, request: Request, given: dict[str, str]) -> Response:
        return Response(200, to_json(self._source.topology()))

    def _paths(self, request: Request, given: dict[str, str]) -> Response:
        return Response(200, to_json(self._source.paths()))

    def _pin(self, request: Request, given: dict[str, str]) -> Response:
        if request.content_type.partition(";")[0].strip().lower() != JSON:  # also what keeps foreign web pages from asking
            raise Refused(415, f"a path is sent as JSON, with Content-Type: {JSON}")
        try:
            path = PinRequest.model_validate_json(request.body).path
        except ValidationError as error:
            raise Refused(400, _faults(error)) from error
        topology = self._source.topology()
        nodes = {*topology["hosts"], *topology["traffic_hosts"], *topology["switches"]}
        for name in path:
            if name not in nodes:
                raise Refused(400, f"this run has no node {_shown(name)}; GET /topology lists them")
        objection = self._source.pin(path)
        if objection is not None:
            raise Refused(400, objection)
        return self._paths(request, given)

    def _openapi(self, request: Request, given: dict[str, str]) -> Response:
        return Response(200, self._description)

    def _message(self, entry: Entry) -> dict[str, Any]:
        return message(link_state(entry, self._now_s()))


def message(state: LinkState) -> dict[str, Any]:
    """Return what the API says of a queue; what is no finite number is null."""
    values = ((name, getattr(state, name)) for name in _FIELDS)  # `asdict` copies deeply, which costs more than all the rest
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values}


def event(kind: str, content: Any) -> bytes:
    """Return a server-sent event."""
    return b"event: " + kind.encode() + b"\ndata: " + to_json(content) + b"\n\n"


def to_json(content: Any) -> bytes:
    """Return JSON on one line; ValueError on numbers that JSON does not have."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def _decoded(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise Refused(400, "a % in the target is not followed by two hexadecimal digits")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Refused(400, "the target's percent-encodings are not UTF-8") from None


def _parameters(query: str, route: str, method: str) -> dict[str, str]:
    """Return the parameters behind the question mark; only those of the endpoint, and each once."""
    _decoded(query)
    endpoint = next(one for one in ENDPOINTS if (one.path, one.method) == (route, method))
    known = {parameter["name"] for parameter in endpoint.parameters if parameter["in"] == "query"}
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise Refused(400, f"{route} has no parameter {_shown(name)}" + (f"; it has {', '.join(known)}" if known else ""))
        if name in given:
            raise Refused(400, f"{name} is given more than once")
        given[name] = value
    return given


def _faults(error: ValidationError) -> str:
    """Put what is wrong with a body into a sentence."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(str(step) for step in fault['loc']) or 'the body'}: {fault['msg']}" for fault in faults[:_MOST_FAULTS_TOLD]]
    return "; ".join(told)


def _shown(text: str) -> str:
    return _at_most(_MOST_SHOWN, repr(text))


def _at_most(characters: int, text: str) -> str:
    return text if len(text) <= characters else f"{text[:characters]}..."
