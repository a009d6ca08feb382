"""What background flows delivered: by the kernel's counters of TCP, and by what iperf3's server says of UDP."""

from __future__ import annotations

import socket
import struct

import pytest

from testbed.emulation.goodput import Interval, TcpMeter, UdpMeter

PAYLOAD_BYTES = 1472
HEAD = """\
-----------------------------------------------------------
Server listening on 5201 (test #1)
-----------------------------------------------------------
Accepted connection from 10.0.0.1, port 57200
[  5] local 10.0.0.3 port 5201 connected to 10.0.0.1 port 48863
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
"""
RULE = "- - - - - - - - - - - - - - - - - - - - - - - - -\n"
SUMMARY = RULE + "[  5]   0.00-5.50   sec  1.15 MBytes  1751 Kbits/sec  0.124 ms  0/818 (0%)  receiver\n"


def line(start_s, end_s, lost, total, stream="  5"):
    return f"[{stream}] {start_s:6.2f}-{end_s:<6.2f} sec   184 KBytes  3018 Kbits/sec  0.740 ms  {lost}/{total} (9.8%)  \n"


class Server:
    """The log of an iperf3 server whose clock began at 100 s, and the meter that reads it."""

    def __init__(self, folder, flows=1, began_s=100.0):
        self.log = folder / "server.log"
        self.log.write_text(HEAD)
        self.meter = UdpMeter(self.log, began_s, PAYLOAD_BYTES, flows)

    def say(self, *lines):
        with self.log.open("a") as log:
            log.write("".join(lines))

    def read(self):
        return self.meter.read(0.0)


@pytest.fixture
def server(tmp_path):
    return Server(tmp_path)


def udp(start_s, end_s, received, lost=0):
    return Interval(pytest.approx(start_s), pytest.approx(end_s), received * PAYLOAD_BYTES, lost_packets=lost)


def test_intervals_are_those_of_the_server_from_the_flows_start_on(server):
    server.say(line(0, 0.5, 0, 0), line(0.5, 1, 0, 0))
    server.meter.begin(101.2)
    server.say(line(1, 1.5, 0, 76), line(1.5, 2, 5, 128))
    assert server.read() == [udp(101.2, 101.5, 76), udp(101.5, 102, 123, lost=5)]
    assert server.read() == []
    server.say(line(2, 2.5, 128, 128))
    assert server.read() == [udp(102, 102.5, 0, lost=128)]


def test_nothing_received_is_a_row_of_zeros(server):
    server.meter.begin(100.0)
    server.say(line(0, 0.5, 0, 0))
    assert server.read() == [udp(100, 100.5, 0)]


def test_a_short_piece_is_told_with_the_next_one(server):
    server.meter.begin(100.45)
    server.say(line(0, 0.5, 1, 13), line(0.5, 1, 0, 100))
    assert server.read() == [udp(100.45, 101, 112, lost=1)]


def test_of_several_flows_their_sum_is_taken(tmp_path):
    server = Server(tmp_path, flows=2)
    server.meter.begin(100.0)
    server.say(line(0, 0.5, 1, 100), line(0, 0.5, 2, 100, stream=" 11"), line(0, 0.5, 3, 200, stream="SUM"), RULE)
    assert server.read() == [udp(100, 100.5, 197, lost=3)]


def test_a_line_half_written_is_read_when_it_is_whole_and_the_summary_is_no_interval(server):
    server.meter.begin(100.0)
    whole = line(0, 0.5, 0, 128)
    server.say(whole[:60])
    assert server.read() == []
    server.say(whole[60:], SUMMARY)
    assert server.read() == [udp(100, 100.5, 128)]


def test_udp_is_over_when_an_interval_after_the_stop_brought_nothing(server):
    server.meter.begin(100.0)
    stopped_s = 101.2
    for said, over in [
        (line(0, 0.5, 0, 0), False),  # quiet before the stop
        (line(0.5, 1, 0, 50), False),
        (line(1, 1.5, 0, 10), False),
        (line(1.5, 2, 0, 1), False),  # from a queue
        (line(2, 2.5, 0, 0), True),
    ]:
        server.say(said)
        server.read()
        assert server.meter.is_over(stopped_s) is over


def test_a_server_that_has_ended_leaves_silence(server):
    server.meter.begin(100.0)
    server.say(line(0, 0.5, 0, 50))
    server.read()
    assert server.meter.silence(101.0) == [udp(100.5, 101, 0)]
    assert server.meter.silence(101.5) == [udp(101, 101.5, 0)]


@pytest.fixture
def stream():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    yield sender, receiver
    sender.close()
    receiver.close()


def move(stream, count):
    sender, receiver = stream
    sender.sendall(bytes(count))
    while count:
        count -= len(receiver.recv(count))


def test_tcp_counts_what_was_received_since_the_last_look_whoever_reads_it(stream):
    move(stream, 37)  # before the flow begins
    meter = TcpMeter([stream[0]], [stream[1]])
    meter.begin(10.0)
    move(stream, 5000)
    assert meter.read(10.5) == [Interval(10.0, 10.5, 5000, retransmits=0)]
    assert meter.read(11.0) == [Interval(10.5, 11.0, 0, retransmits=0)]


def test_tcp_is_over_when_every_receiver_has_been_reset_and_the_rest_is_still_counted(stream):
    meter = TcpMeter([stream[0]], [stream[1]])
    meter.begin(10.0)
    move(stream, 100)
    assert not meter.is_over(10.5)
    stream[0].close()
    assert meter.is_over(10.5)
    assert meter.read(11.0) == [Interval(10.0, 11.0, 100, retransmits=0)]
