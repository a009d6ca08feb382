import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.sensing import tcpinfo
from workloads.sensing.tcpinfo import Connections, TcpSensor, parse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="struct tcp_info is Linux's")
Pair = tuple[socket.socket, socket.socket]
ESTABLISHED, TCP_INFO_BYTES = 1, 280


def connected(family: socket.AddressFamily = socket.AF_INET) -> Pair:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        return client, server.accept()[0]


def send(pair: Pair, size: int) -> None:
    """Send and wait until all has arrived."""
    pair[0].sendall(bytes(size))
    while size > 0:
        size -= len(pair[1].recv(size))


@pytest.fixture
def pair() -> Iterator[Pair]:
    client, server = connected()
    yield client, server
    client.close()
    server.close()


@pytest.fixture
def sensor(pair: Pair) -> TcpSensor:
    """Make a sensor that has seen all that was sent so far."""
    made = TcpSensor()
    made.read()
    return made


def read(sensor: TcpSensor) -> Connections:
    connections = sensor.read()
    assert connections is not None
    return connections


def tcp_info(size: int = TCP_INFO_BYTES) -> bytes:
    """Write a struct tcp_info by the header's field order, not by offsets, and cut it to what an older kernel fills."""
    words = [0] * 24  # rto ... total_retrans
    words[15], words[23] = 12_500, 7  # rtt, total_retrans
    whole = struct.pack("=8B", ESTABLISHED, *[0] * 7) + struct.pack("=24I", *words)
    whole += struct.pack("=4Q", 11, 12, 1_000, 2_000)  # pacing_rate, max_pacing_rate, bytes_acked, bytes_received
    whole += struct.pack("=6I", 1, 2, 3, 10_000, 4, 5)  # segs_out, segs_in, notsent_bytes, min_rtt, data_segs_in, data_segs_out
    whole += struct.pack("=4Q", 1_250_000, 6, 7, 8)  # delivery_rate, busy_time, rwnd_limited, sndbuf_limited
    whole += struct.pack("=2I2Q", 9, 10, 3_000, 400)  # delivered, delivered_ce, bytes_sent, bytes_retrans
    return whole.ljust(size, b"\0")[:size]


def test_a_struct_of_today_is_parsed_in_full() -> None:
    info = parse(tcp_info())
    assert info is not None
    assert tuple(info) == (ESTABLISHED, 0.0125, 7, 1_000, 2_000, 0.01, 10e6, 3_000, 400)
    assert info.sent == 3_000


@pytest.mark.parametrize(
    ("size", "known", "sent"),
    [
        (104, 3, 0),  # Linux 3.0
        (136, 5, 1_000),  # 4.1: bytes_acked and bytes_received
        (160, 6, 1_000),  # 4.6: min_rtt
        (168, 7, 1_000),  # 4.9: delivery_rate
        (200, 7, 1_000),
        (216, 9, 3_000),  # 4.19: bytes_sent and bytes_retrans
    ],
)
def test_an_older_kernel_leaves_the_newer_fields_unknown(size: int, known: int, sent: int) -> None:
    info, whole = parse(tcp_info(size)), parse(tcp_info())
    assert info is not None and whole is not None
    assert tuple(info) == tuple(whole)[:known] + (None,) * (9 - known)
    assert info.sent == sent


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    assert (parse(data) is None) == (len(data) < 104)


def test_an_unmeasured_smallest_round_trip_is_unknown() -> None:
    data = tcp_info()
    info = parse(data[:148] + b"\xff" * 4 + data[152:])
    assert info is not None and info.min_rtt_s is None


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_that_sends_is_seen(sensor: TcpSensor, family: socket.AddressFamily) -> None:
    try:
        pair = connected(family)
    except OSError as reason:
        pytest.skip(str(reason))
    with pair[0], pair[1]:
        send(pair, 100_000)
        seen = read(sensor)
    assert seen.sockets == 1
    assert 0 < seen.rtt_s < 1
    assert seen.min_rtt_s is not None and 0 < seen.min_rtt_s <= 1
    assert seen.delivery_bps is not None and seen.delivery_bps > 0
    assert seen.retransmits == 0


def test_the_kernel_counts_the_bytes_we_sent(pair: Pair) -> None:
    send(pair, 123_456)
    info = parse(pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512))
    assert info is not None and info.bytes_sent == info.sent == 123_456 + (info.bytes_retrans or 0)
    received = parse(pair[1].getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 512))
    assert received is not None and received.bytes_received == 123_456


def test_only_what_was_sent_since_the_last_read_counts(sensor: TcpSensor, pair: Pair) -> None:
    send(pair, 1_000)
    assert read(sensor).sockets == 1
    assert sensor.read() is None
    send(pair, 1_000)
    send((pair[1], pair[0]), 1_000)
    assert read(sensor).sockets == 2


def test_the_busiest_connection_speaks_and_all_retransmissions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def info(rtt_s: float, retrans: int, sent: int) -> tcpinfo.TcpInfo:
        return tcpinfo.TcpInfo(ESTABLISHED, rtt_s, retrans, 0, 0, rtt_s / 2, 8e6 * rtt_s, sent, 0)

    reads = [{1: info(0.1, 5, 100), 2: info(0.2, 0, 900)}, {1: info(0.1, 7, 1_000), 2: info(0.2, 1, 1_000), 3: info(0.3, 9, 0)}]
    sensor = TcpSensor()
    monkeypatch.setattr(sensor, "_established", lambda: reads.pop(0))
    assert read(sensor) == Connections(rtt_s=0.2, min_rtt_s=0.1, delivery_bps=1.6e6, retransmits=5, sockets=2)
    assert read(sensor) == Connections(rtt_s=0.1, min_rtt_s=0.05, delivery_bps=0.8e6, retransmits=3, sockets=2)


def test_where_time_is_dilated_times_and_rates_are_the_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = TcpSensor(dilation=5.0)
    old = tcpinfo.TcpInfo(ESTABLISHED, 0.05, 2, 0, 0, 0.04, 8e6, 900, 0)
    monkeypatch.setattr(sensor, "_established", lambda: {1: old})
    assert read(sensor) == Connections(pytest.approx(0.01), pytest.approx(0.008), pytest.approx(40e6), retransmits=2, sockets=1)  # type: ignore[arg-type]
    silent = old._replace(min_rtt_s=None, delivery_bps=None, bytes_sent=1_800)
    monkeypatch.setattr(sensor, "_established", lambda: {1: silent})
    connections = read(sensor)
    assert (connections.min_rtt_s, connections.delivery_bps) == (None, None)


def test_the_sockets_of_other_processes_are_not_ours(sensor: TcpSensor) -> None:
    code = (
        "import socket, sys\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\n"
        "client.sendall(bytes(10_000))\n"
        "print('sent', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "sent\n"
        assert sensor.read() is None
        other.communicate("done\n", timeout=30)


def test_a_closed_socket_vanishes_and_its_number_may_be_used_again(sensor: TcpSensor, pair: Pair) -> None:
    other = connected()
    send(other, 50_000)
    assert read(sensor).sockets == 1
    number = other[0].fileno()
    other[0].close()
    other[1].close()
    assert sensor.read() is None
    again = connected()
    with again[0], again[1]:
        send(again, 10)  # less than the closed one sent: counted from its own beginning
        assert number in (again[0].fileno(), again[1].fileno())
        assert read(sensor).sockets == 1


def test_a_socket_with_the_number_of_a_closed_file_is_found_within_some_reads(sensor: TcpSensor) -> None:
    files = [open(os.devnull) for _ in range(3)]  # noqa: SIM115 - a listener and a connection take their numbers
    sensor.read()
    for file in files:
        file.close()
    pair = connected()
    with pair[0], pair[1], open(os.devnull):
        seen = []
        for _ in range(tcpinfo._RESCAN_READS + 1):
            send(pair, 10)
            seen.append(sensor.read())
        assert seen[-1] is not None


def test_other_kinds_of_sockets_are_passed_over(sensor: TcpSensor) -> None:
    left, right = socket.socketpair()
    with left, right, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.create_server(("127.0.0.1", 0)):
        left.sendall(b"x")
        datagrams.sendto(b"x", ("127.0.0.1", 9))
        assert sensor.read() is None


def test_reading_leaves_the_sockets_as_they_are(sensor: TcpSensor, pair: Pair) -> None:
    pair[0].setblocking(True)
    for _ in range(3):
        sensor.read()
    assert os.get_blocking(pair[0].fileno())
    send(pair, 10)


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_without_proc_there_is_nothing_to_tell(
    sensor: TcpSensor, pair: Pair, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    def refuse(path: str) -> list[str]:
        raise error(path)

    send(pair, 10)
    monkeypatch.setattr(os, "listdir", refuse)
    assert sensor.read() is None
    monkeypatch.undo()
    assert read(sensor).sockets == 1  # nothing was forgotten meanwhile


def test_a_kernel_that_refuses_tells_nothing(sensor: TcpSensor, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    send(pair, 10)
    monkeypatch.setattr(sensor, "_getsockopt", lambda *arguments: -1)
    assert sensor.read() is None


def test_another_system_tells_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert TcpSensor().read() is None


def test_a_closed_sensor_tells_nothing(sensor: TcpSensor, pair: Pair) -> None:
    send(pair, 10)
    sensor.close()
    sensor.close()
    assert sensor.read() is None
