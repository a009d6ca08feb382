"""Reading a queue by netlink: the kernel's answer is parsed, and a damaged one is an error, never a number."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import queues
from controller.queues import QueueReader, QueueSample

NEW_QDISC, ERROR, NEW_LINK = 36, 2, 16
KIND, STATS2, BASIC, QUEUE = 1, 7, 1, 3


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def message(sequence: int, kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


def statistics(sample: QueueSample) -> bytes:
    """Lay the counters out as the kernel does: the basic ones padded to 16 bytes, and attributes of no interest around them."""
    basic = struct.pack("=QIxxxx", sample.sent_bytes, sample.sent_packets)
    queue = struct.pack("=IIIII", sample.queued_packets, sample.backlog_bytes, sample.dropped_packets, 11, 12)
    return attribute(BASIC, basic) + attribute(8, bytes(8)) + attribute(QUEUE, queue)


def answer(sequence: int, sample: QueueSample) -> bytes:
    tcmsg = struct.pack("=BxxxiIII", 0, 4, 0x10000, 0xFFFFFFFF, 0)
    return message(
        sequence, NEW_QDISC, tcmsg + attribute(KIND, b"bfifo\0") + attribute(STATS2, statistics(sample)) + attribute(3, bytes(5))
    )


class Kernel:
    """A netlink socket whose answers are written beforehand."""

    def __init__(self, *_: int) -> None:
        self.asked: list[bytes] = []
        self.answers: list[bytes] = []

    def bind(self, address: tuple[int, int]) -> None:
        pass

    def send(self, request: bytes) -> None:
        self.asked.append(request)

    def recv(self, size: int) -> bytes:
        return self.answers.pop(0)[:size]


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(socket, "socket", Kernel)
    return QueueReader()


@pytest.fixture
def kernel(reader):
    return reader._socket


SAMPLE = QueueSample(sent_bytes=5_000_000_000, sent_packets=4_000_000, backlog_bytes=30_280, queued_packets=20, dropped_packets=7)


def test_a_queues_counters_are_read_from_the_kernels_answer(reader, kernel):
    kernel.answers = [answer(1, SAMPLE)]
    assert reader.read(4, 0x1) == SAMPLE


def test_the_request_names_the_interface_and_the_queue(reader, kernel):
    kernel.answers = [answer(1, SAMPLE)]
    reader.read(4, 0xABC)
    length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", kernel.asked[0])
    _, ifindex, handle, parent, _ = struct.unpack_from("=BxxxiIII", kernel.asked[0], 16)
    assert (length, kind, flags & 1, sequence) == (len(kernel.asked[0]), 38, 1, 1)
    assert (ifindex, handle, parent) == (4, 0x0ABC0000, 0)


def test_answers_to_earlier_requests_and_other_news_are_passed_over(reader, kernel):
    stale = QueueSample(1, 1, 1, 1, 1)
    kernel.answers = [answer(1, SAMPLE), answer(1, stale), message(2, NEW_LINK, bytes(20)), answer(2, SAMPLE)]
    reader.read(4, 1)
    assert reader.read(4, 1) == SAMPLE


def test_a_queue_that_is_not_there_is_an_os_error_that_names_it(reader, kernel):
    kernel.answers = [message(1, ERROR, struct.pack("=i", -errno.ENOENT) + bytes(16))]
    with pytest.raises(OSError, match="no queue abc: on interface 4") as caught:
        reader.read(4, 0xABC)
    assert caught.value.errno == errno.ENOENT


def test_what_follows_the_message_in_the_buffer_is_not_read_as_part_of_it(reader, kernel):
    other = attribute(STATS2, statistics(QueueSample(1, 1, 1, 1, 1)))
    kernel.answers = [answer(1, SAMPLE) + other]
    assert reader.read(4, 1) == SAMPLE


longs, words = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


@given(st.builds(QueueSample, longs, words, words, words, words))
def test_every_counter_is_read_whole_and_in_its_place(sample):
    assert queues._parse(answer(1, sample)[16 + 20 :]) == sample


@pytest.mark.parametrize("length", range(0, len(answer(1, SAMPLE)) - 12, 3))  # the last attribute is of no interest
def test_an_answer_cut_short_is_an_error_and_not_a_number(reader, kernel, length):
    kernel.answers = [answer(1, SAMPLE)[:length]]
    with pytest.raises((OSError, LookupError, struct.error)):
        reader.read(4, 1)


@pytest.mark.parametrize("missing", [BASIC, QUEUE])
def test_an_answer_without_the_counters_is_an_error(missing):
    there = attribute(QUEUE, bytes(20)) if missing == BASIC else attribute(BASIC, bytes(16))
    with pytest.raises((OSError, LookupError)):
        queues._parse(attribute(STATS2, there))


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_taken_apart_without_going_round_in_circles_or_past_the_end(data):
    found = queues._attributes(data)
    assert sum(map(len, found.values())) <= len(data)
    assert all(value in data for value in found.values())


@pytest.mark.parametrize("length", [0, 1, 3])
def test_an_attribute_shorter_than_its_own_header_ends_the_list(length):
    assert queues._attributes(attribute(KIND, b"abcd") + struct.pack("=HH", length, STATS2) + bytes(40)) == {KIND: b"abcd"}
