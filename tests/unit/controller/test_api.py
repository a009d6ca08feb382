"""The API over real sockets: nothing beyond the address asked for, nobody holds it up, and it leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import stat
import threading
import time

import pytest
from api_source import PATH, TRAINING, FakeRun

from controller import api as module
from controller import connection
from controller.api import Api, ApiError
from controller.board import BoardError
from testbed.cluster.interfaces import address_towards

GET_LINKS = b"GET /links HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def source():
    return FakeRun()


@pytest.fixture
def api(source, tmp_path):
    api = Api(source, tmp_path / "api.sock", ("127.0.0.1", 0))
    api.start()
    yield api
    api.close()


@pytest.fixture
def unix(api, tmp_path):
    """Return a function that connects to the unix socket; all connections are closed at the end."""
    opened = []

    def connect() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(10)
        client.connect(str(tmp_path / "api.sock"))
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


def everything(client: socket.socket) -> bytes:
    """Read until the server ends the connection."""
    content = b""
    while chunk := client.recv(1 << 16):
        content += chunk
    return content


def ask(client: socket.socket, request: bytes) -> tuple[int, bytes]:
    """Send bytes, return status and body of what comes back until the end of the connection."""
    client.sendall(request)
    head, _, body = everything(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    return int(head.split()[1]), body


def wait_until(condition, within_s=5.0):
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def over_tcp(api: Api, host: str | None = None) -> http.client.HTTPResponse:
    client = http.client.HTTPConnection("127.0.0.1", api.tcp_port, timeout=10)
    client.request("GET", "/links", headers={} if host is None else {"Host": host})
    return client.getresponse()


def test_links_come_over_the_unix_socket(unix):
    status, body = ask(unix(), GET_LINKS)
    assert status == 200
    assert json.loads(body)[0]["id"] == TRAINING


def test_tcp_is_served_on_the_address_asked_for_and_not_unless_asked(api, source, tmp_path):
    assert [listener.getsockname()[0] for listener in api._listeners[1:]] == ["127.0.0.1"]
    assert json.loads(over_tcp(api).read())[0]["id"] == TRAINING
    alone = Api(source, tmp_path / "alone.sock")
    assert [listener.family for listener in alone._listeners] == [socket.AF_UNIX]
    alone.close()


def test_over_tcp_another_hosts_name_is_refused(api):
    response = over_tcp(api, "evil.example")
    assert response.status == 403
    assert "localhost" in json.loads(response.read())["error"]


def test_by_an_address_of_other_machines_it_answers_to_the_name_they_use(source, tmp_path):
    try:
        address = address_towards("198.51.100.1")  # sends nothing
    except OSError as reason:
        pytest.skip(f"this machine has no address but the loopback's: {reason}")
    api = Api(source, tmp_path / "open.sock", ("0.0.0.0", 0))
    api.start()
    statuses = []
    for server in (address, "127.0.0.1"):
        client = http.client.HTTPConnection(server, api.tcp_port, timeout=10)
        client.request("GET", "/links", headers={"Host": "testbed:9464"})
        statuses.append(client.getresponse().status)
        client.close()
    api.close()
    assert statuses == [200, 403]


def test_an_answer_has_its_headers_and_keeps_the_connection(unix):
    client = unix()
    for _ in range(2):
        client.sendall(b"GET /paths HTTP/1.1\r\nHost: x\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert json.loads(response.read()) == [PATH, PATH[::-1]]
        assert (response.headers["Content-Type"], response.headers["Cache-Control"]) == ("application/json", "no-store")
        assert "Python" not in response.headers["Server"]


def test_head_has_no_body(unix):
    status, body = ask(unix(), GET_LINKS.replace(b"GET", b"HEAD"))
    assert (status, body) == (200, b"")


def test_a_path_is_posted(unix, source):
    body = json.dumps({"path": PATH}).encode()
    head = b"POST /paths HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert ask(unix(), head % len(body) + body)[0] == 200
    assert source.pinned == [PATH]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\r\n\r\n", None),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /links HTTP/x.y\r\n\r\n", 400),
        (b"GET /links HTTP/9.9\r\n\r\n", 505),
        (b"GET /a b c HTTP/1.1\r\n\r\n", 400),
        (b"\x00\xff\xfe\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: x\r\n" * 200 + b"\r\n", 431),
        (b"BREW /links HTTP/1.1\r\nConnection: close\r\n\r\n", 405),
        (b"POST /paths HTTP/1.1\r\n\r\n", 411),
        (b"POST /paths HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 411),
        (b"POST /paths HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST /paths HTTP/1.1\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000, 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_broken_http_is_told_in_json_or_hung_up_on(unix, request_bytes, status):
    if status is None:
        client = unix()
        client.sendall(request_bytes)
        client.shutdown(socket.SHUT_WR)
        everything(client)
        return
    got, body = ask(unix(), request_bytes)
    assert got == status
    assert json.loads(body)["error"]
    assert len(body) < 700


def test_a_body_that_ends_early_is_told(unix):
    client = unix()
    client.sendall(b"POST /paths HTTP/1.1\r\nContent-Length: 50\r\n\r\nshort")
    client.shutdown(socket.SHUT_WR)
    assert b" 400 " in everything(client)


def test_a_body_that_does_not_come_is_told(unix, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_S", 0.2)
    status, body = ask(unix(), b"POST /paths HTTP/1.1\r\nContent-Length: 50\r\n\r\nshort")
    assert status == 408
    assert "in time" in json.loads(body)["error"]


def test_an_idle_client_is_hung_up_on(unix, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_S", 0.1)
    assert everything(unix()) == b""


def test_a_client_that_drips_is_hung_up_on(unix, monkeypatch):
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_S", 0.5)
    client = unix()
    began_s = time.monotonic()

    def drip():
        while time.monotonic() < began_s + 10:
            client.sendall(b"x")
            time.sleep(0.02)

    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        drip()
    assert time.monotonic() - began_s < 5


def test_one_client_too_many_is_told_and_room_is_made_when_one_leaves(api, unix, monkeypatch):
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 2)
    first, _ = unix(), unix()
    wait_until(lambda: len(api._connections) == 2)
    status, body = ask(unix(), GET_LINKS)
    assert status == 503
    assert "try again" in json.loads(body)["error"]
    first.close()
    wait_until(lambda: len(api._connections) == 1)
    assert ask(unix(), GET_LINKS)[0] == 200


def stream(client: socket.socket, interval_s: float = 0.02):
    client.sendall(b"GET /stream?interval_s=%a HTTP/1.1\r\n\r\n" % interval_s)
    return client.makefile("rb")


def kinds(content: bytes) -> list[bytes]:
    return re.findall(rb"^event: (.*)$", content, re.MULTILINE)


def test_a_stream_has_one_event_an_interval_and_says_when_it_ends(api, unix):
    began_s = time.monotonic()
    lines = stream(unix(), 0.1)
    found: list[list[dict]] = []
    while len(found) < 5:
        line = lines.readline()
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
    assert 0.4 <= time.monotonic() - began_s < 4
    assert all(links[0]["id"] == TRAINING for links in found)
    api.close()
    rest = lines.read()
    assert kinds(rest)[-1:] == [b"end"]
    assert rest.endswith(b'data: {"reason":"the run has ended"}\n\n')


def test_a_stream_whose_board_is_gone_says_so_and_ends(unix, source):
    lines = stream(unix())
    while not lines.readline().startswith(b"data: "):
        pass
    source.fault = BoardError("the board is gone")
    rest = lines.read()
    assert kinds(rest)[-1] == b"error"
    assert b"the board is gone" in rest


def test_a_client_that_leaves_its_stream_is_noticed_long_before_the_next_event(api, unix):
    client = unix()
    lines = stream(client, 60)
    while not lines.readline().startswith(b"data: "):
        pass
    lines.close()
    client.close()
    wait_until(lambda: not api._connections)


def test_a_client_that_does_not_read_its_stream_is_hung_up_on(api, unix, source, monkeypatch):
    monkeypatch.setattr(connection, "SEND_TIMEOUT_S", 0.2)
    source.many = 100
    stream(unix())
    wait_until(lambda: len(api._connections) == 1)
    wait_until(lambda: not api._connections, within_s=20)


def test_many_clients_at_once_are_all_answered(unix):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(unix(), GET_LINKS)[0])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 20


def test_closing_is_quick_removes_the_socket_and_leaves_no_thread(api, unix, tmp_path):
    unix()
    stream(unix(), 60)
    wait_until(lambda: len(api._connections) == 2)
    began_s = time.monotonic()
    api.close()
    assert time.monotonic() - began_s < 1.5
    assert not (tmp_path / "api.sock").exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("api-")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", api.tcp_port), timeout=5)
    api.close()


def test_only_the_owner_may_connect(api, tmp_path):
    mode = os.stat(tmp_path / "api.sock").st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_path_longer_than_a_unix_address_is_served(source, tmp_path):
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    api = Api(source, folder / "api.sock")
    api.start()
    descriptor = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"/proc/self/fd/{descriptor}/api.sock")
        assert ask(client, GET_LINKS)[0] == 200
    os.close(descriptor)
    api.close()
    assert list(folder.iterdir()) == []


def test_a_port_that_is_taken_is_told_and_leaves_no_socket(source, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ApiError, match=r"in use; give another one with --listen"):
        Api(source, tmp_path / "api.sock", taken.getsockname())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_does_not_exist_is_told(source, tmp_path, port):
    with pytest.raises(ApiError, match=str(port)):
        Api(source, tmp_path / "api.sock", ("127.0.0.1", port))


def test_a_folder_that_is_not_there_is_told(source, tmp_path):
    with pytest.raises(ApiError, match="no such file"):
        Api(source, tmp_path / "nowhere" / "api.sock")


def test_the_socket_of_a_killed_run_is_replaced_but_nothing_that_answers_and_no_file(source, api, tmp_path):
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "old.sock"))
    Api(source, tmp_path / "old.sock").close()
    with pytest.raises(ApiError, match="in use"):
        Api(source, tmp_path / "api.sock")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ApiError, match="in use"):
        Api(source, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
