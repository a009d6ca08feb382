"""Read a running experiment's queues and paths from Python; the standard library is enough.

    from controller.client import Client

    run = Client("results/quick/netsense")          # or Client("http://127.0.0.1:9464")
    for links in run.stream(interval_s=0.1):
        print([(link["id"], link["utilisation"], link["backlog_ms"]) for link in links])

docs/controller.md says what the fields mean.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

SOCKET = Path("stream", "api.sock")  # within a run's folder
Link = dict[str, Any]


class ClientError(RuntimeError):
    """A request was not answered as hoped; the message says why, in the server's words if it gave any."""


class Client:
    """Asks the API of one run."""

    def __init__(self, run_folder_or_url: str | os.PathLike[str], timeout_s: float = 10.0) -> None:
        """Take a run's folder, e.g. results/quick/netsense, or the address given by `testbed run --listen`."""
        self._timeout_s = timeout_s
        self._folder: Path | None = None
        self._address = ("", 0)
        where = os.fspath(run_folder_or_url)
        if "://" in where:
            self._address = _address(where)
        else:
            self._folder = Path(where)

    def links(self) -> list[Link]:
        """Return every queue as it is now."""
        found: list[Link] = self._json("GET", "/links")
        return found

    def link(self, identity: str) -> Link:
        """Return one queue as it is now, e.g. `bottleneck:s1->s2`."""
        found: Link = self._json("GET", f"/links/{quote(identity, safe='')}")
        return found

    def stream(self, interval_s: float = 0.1) -> Iterator[list[Link]]:
        """Yield all queues every so often until the run ends; ClientError if it ends without saying so."""
        connection = self._connect(interval_s + self._timeout_s)
        try:
            with self._ask(connection, "GET", f"/stream?{urlencode({'interval_s': interval_s})}") as response:
                for kind, content in self._events(response):
                    if kind == "end":
                        return
                    if kind == "error":
                        raise ClientError(content["error"])
                    yield content
        finally:
            connection.close()
        raise ClientError(f"{self._name}: the run was cut off")

    def topology(self) -> dict[str, Any]:
        """Return hosts, switches, links, and which links are down."""
        found: dict[str, Any] = self._json("GET", "/topology")
        return found

    def paths(self) -> list[list[str]]:
        """Return the node path of every pair of hosts."""
        found: list[list[str]] = self._json("GET", "/paths")
        return found

    def pin(self, path: Sequence[str]) -> list[list[str]]:
        """Send a pair of hosts along a path, both ways; return the paths from then on."""
        found: list[list[str]] = self._json("POST", "/paths", {"path": list(path)})
        return found

    def metrics(self) -> str:
        """Return the text that Prometheus would read."""
        return self._text("GET", "/metrics")

    @property
    def _name(self) -> str:
        return str(self._folder) if self._folder is not None else "http://{}:{}".format(*self._address)

    def _json(self, method: str, target: str, body: Any = None) -> Any:
        text = self._text(method, target, body)
        try:
            return json.loads(text)
        except ValueError:
            raise ClientError(f"{self._name}: what answers there is not a testbed's run") from None

    def _text(self, method: str, target: str, body: Any = None) -> str:
        connection = self._connect(self._timeout_s)
        try:
            return self._ask(connection, method, target, body).read().decode()
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            raise ClientError(f"{self._name}: the answer was cut off: {error}") from error
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._folder is None:
            connection = http.client.HTTPConnection(*self._address, timeout=timeout_s)
        else:
            connection = _UnixConnection(self._folder / SOCKET, timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ClientError(self._why_not(error)) from error
        return connection

    def _why_not(self, error: OSError) -> str:
        if self._folder is None:
            return f"{self._name}: nothing answers there ({error}); `testbed run --listen {self._address[1]}` does while a run goes on"
        if isinstance(error, PermissionError):
            return f"{self._folder}: the run belongs to another user; ask as that user or with sudo"
        return why_not_live(self._folder)

    def _ask(self, connection: http.client.HTTPConnection, method: str, target: str, body: Any = None) -> http.client.HTTPResponse:
        try:
            if body is None:
                connection.request(method, target)
            else:
                connection.request(method, target, json.dumps(body).encode(), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status == http.HTTPStatus.OK:
                return response
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"{self._name}: no answer: {error or type(error).__name__}") from error
        raise ClientError(_sentence(answer) or f"{self._name}: {response.status} {response.reason}")

    def _events(self, response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
        """Yield server-sent events as (kind, content) until the answer ends."""
        kind = ""
        try:
            for line in response:
                name, _, value = line.rstrip(b"\n").partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    yield kind, json.loads(value)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ClientError(f"{self._name}: the stream was cut off: {error}") from error


def why_not_live(folder: Path) -> str:
    """Tell why nothing answers for a run's folder, and what to do."""
    if not folder.is_dir():
        return f"{folder}: there is no such folder; give a run's, e.g. results/quick/netsense"
    try:
        status = json.loads((folder / "manifest.json").read_text())["status"]
    except (OSError, ValueError, LookupError, TypeError):
        return f"{folder}: this is not a run's folder; give one that has a manifest.json, e.g. results/quick/netsense"
    if status == "running":
        return f"{folder}: the run does not answer: it is booting (try again in a second), or it was killed (`testbed clean` marks it)"
    return f"{folder}: the run is over ({status}); its links.parquet has what the queues did"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect by way of the folder's descriptor: the address of a unix socket has at most 108 bytes."""
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path not in ("", "/"):
        raise ClientError(f"{url}: give a run's folder, or an address such as http://127.0.0.1:9464")
    return parts.hostname, port


def _sentence(answer: bytes) -> str | None:
    try:
        error = json.loads(answer)["error"]
    except (ValueError, LookupError, TypeError):
        return None
    return str(error)
