"""Holding iperf3 back: what it is told, and the filter that keeps its word to start from it."""

from __future__ import annotations

import socket

import pytest

from testbed.emulation import held
from testbed.emulation.iperf import udp_options
from testbed.timeline import BackgroundFlow

PARAM_EXCHANGE, CREATE_STREAMS, TEST_START, TEST_RUNNING = b"\x09", b"\x0a", b"\x01", b"\x02"


def test_a_udp_flows_rate_counts_whole_frames_and_its_datagrams_fill_them():
    assert udp_options(1500, 1514e3) == ["-u", "-b", "1472000", "-l", "1472"]
    assert udp_options(9000, 9014e3) == ["-u", "-b", "8972000", "-l", "8972"]


def test_a_client_is_told_its_flows_its_mark_and_to_send_until_it_is_stopped():
    assert held.client_options(BackgroundFlow(0, 1, "h1", "h2", flows=3), 1500) == ["-t", "0", "-i", "0", "-P", "3"]
    marked = held.client_options(BackgroundFlow(0, 1, "h1", "h2", "udp", rate_bps=1514e3, dscp=8), 1500)
    assert marked == ["-t", "0", "-i", "0", "-P", "1", "-u", "-b", "1472000", "-l", "1472", "-S", "32"]


@pytest.fixture
def control():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(20)
    yield client, server
    client.close()
    server.close()


def test_only_the_word_to_start_is_held_back_until_the_filter_is_taken_off(control):
    client, server = control
    held._filter(client)
    for word in (PARAM_EXCHANGE, CREATE_STREAMS):
        server.sendall(word)
        assert client.recv(10) == word
    server.sendall(TEST_START)
    server.sendall(TEST_RUNNING)
    assert held._queued(server, held._SIOCOUTQ) == 2
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(10)
    client.settimeout(20)
    client.setsockopt(socket.SOL_SOCKET, held._SO_DETACH_FILTER, 0)
    found = client.recv(10)  # TCP sends it again
    while len(found) < 2:
        found += client.recv(10)
    assert found == TEST_START + TEST_RUNNING
