"""The Python client: what the API says as plain data, and every failure as one sentence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from api_source import PATH, TRAINING, UPLINK, FakeRun

from controller.api import Api
from controller.board import BoardError
from controller.client import Client, ClientError
from controller.handlers import ControlError


@pytest.fixture
def source():
    return FakeRun()


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a run, deep enough for its socket not to fit into a unix address."""
    folder = tmp_path / ("results-" + "x" * 120) / "netsense"
    (folder / "stream").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"status": "running"}))
    return folder


@pytest.fixture
def api(source, folder):
    api = Api(source, folder / "stream" / "api.sock", tcp=("127.0.0.1", 0))
    api.start()
    yield api
    api.close()


@pytest.fixture(params=["folder", "url"])
def client(request, api, folder):
    return Client(folder) if request.param == "folder" else Client(f"http://127.0.0.1:{api.tcp_port}")


def test_what_the_api_says_comes_as_plain_data(client, source):
    assert [link["id"] for link in client.links()] == [TRAINING, UPLINK]
    assert client.link(TRAINING)["backlog_ms"] == 20.0
    assert client.topology() == source.topology()
    assert client.paths() == source.paths()
    assert "testbed_link_backlog_bytes{" in client.metrics()


def test_a_path_is_pinned(client, source):
    assert client.pin(tuple(PATH)) == [PATH, PATH[::-1], PATH]
    assert source.pinned == [PATH]


def test_a_refusal_has_the_servers_words(client, source):
    with pytest.raises(ClientError, match=r"no link 'nothing/%'"):
        client.link("nothing/%")
    with pytest.raises(ClientError, match=r"no node 's9'"):
        client.pin(["h1", "s9", "h2"])
    source.objection = "h1 is a host: nothing passes through it"
    with pytest.raises(ClientError, match=source.objection):
        client.pin(PATH)
    source.fault = ControlError("the controller does not answer just now")
    with pytest.raises(ClientError, match="does not answer just now"):
        client.pin(PATH)


def test_a_stream_goes_on_until_the_run_ends(client, api):
    stream = client.stream(interval_s=0.02)
    assert [link["id"] for link in next(stream)] == [TRAINING, UPLINK]
    next(stream)
    closing = threading.Thread(target=api.close)
    closing.start()
    for links in stream:
        assert len(links) == 2
    closing.join()


def test_a_stream_that_is_left_leaves_the_server(client, api):
    stream = client.stream(interval_s=0.02)
    next(stream)
    stream.close()
    deadline = threading.Event()
    for _ in range(500):
        if not api._connections:
            break
        deadline.wait(0.01)
    assert not api._connections


def test_a_stream_that_fails_says_why(client, source):
    stream = client.stream(interval_s=0.02)
    next(stream)
    source.fault = BoardError("the board is gone")
    with pytest.raises(ClientError, match="the board is gone"):
        list(stream)
    with pytest.raises(ClientError, match="the board is gone"):
        next(client.stream())
    with pytest.raises(ClientError, match=r"interval_s is a number of seconds from 0\.02 to 60"):
        next(client.stream(interval_s=0))


def bind(listener: socket.socket, folder: Path) -> None:
    descriptor = os.open(folder / "stream", os.O_PATH)
    listener.bind(f"/proc/self/fd/{descriptor}/api.sock")
    os.close(descriptor)


@pytest.fixture
def answering(folder):
    """Return a function that lets the run's socket answer one connection with these bytes and hang up."""
    listener = socket.socket(socket.AF_UNIX)
    threads = []

    def answer(content: bytes):
        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(content)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    bind(listener, folder)
    listener.listen()
    yield answer
    for thread in threads:
        thread.join(10)
    listener.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_an_answer_that_is_none_is_told(answering, folder, content):
    answering(content)
    with pytest.raises(ClientError, match=r"results-x+/netsense"):
        Client(folder).links()


def test_a_stream_that_is_cut_off_is_told(answering, folder):
    answering(b'HTTP/1.1 200 OK\r\n\r\nevent: links\ndata: []\n\nevent: links\ndata: [{"i')
    stream = Client(folder).stream()
    assert next(stream) == []
    with pytest.raises(ClientError, match="cut off"):
        next(stream)
    answering(b"HTTP/1.1 200 OK\r\n\r\nevent: links\ndata: []\n\n")
    stream = Client(folder).stream()
    assert next(stream) == []
    with pytest.raises(ClientError, match="cut off"):
        next(stream)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ('{"status": "running"}', "booting"),
        ('{"status": "complete"}', r"over \(complete\); its links\.parquet"),
        ('{"status": "failed"}', r"over \(failed\)"),
        ('{"stat', "not a run's folder"),
        ("[]", "not a run's folder"),
        (None, "not a run's folder"),
    ],
)
def test_a_run_that_is_not_live_is_told_with_the_remedy(tmp_path, manifest, words):
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(ClientError, match=words):
        Client(tmp_path).links()


def test_a_run_whose_socket_nobody_answers_is_told(folder, api):
    api.close()
    with socket.socket(socket.AF_UNIX) as killed:
        bind(killed, folder)
    with pytest.raises(ClientError, match="testbed clean"):
        Client(folder).links()


def test_a_folder_or_an_address_where_nothing_is_is_told(tmp_path):
    with pytest.raises(ClientError, match="no such folder"):
        Client(tmp_path / "nowhere").links()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ClientError, match=f"testbed run --listen {port}"):
        Client(f"http://127.0.0.1:{port}").links()


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:9464", "http://", "http://127.0.0.1", "http://127.0.0.1:x", "http://127.0.0.1:9464/links", "unix://a"]
)
def test_a_bad_address_is_told(url):
    with pytest.raises(ClientError, match="such as http://127"):
        Client(url)


def test_the_client_needs_the_standard_library_only():
    code = "import sys, controller.client; print(*sys.modules)"
    modules = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert {"torch", "os_ken", "pydantic", "prometheus_client", "controller.api", "http.server"} & modules == set()
