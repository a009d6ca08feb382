"""Reading queues by netlink: the kernel's answers are parsed, and a damaged one is an error, never a number."""

from __future__ import annotations

import errno
import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import queues
from controller.queues import MOST_AT_ONCE, QueueReader, QueueSample

NEW_CLASS, GET_CLASS, ERROR, DONE, NEW_LINK = 40, 42, 2, 3, 16
ECHO, DUMP = 1 | 8, 1 | 0x300
KIND, STATS2, BASIC, QUEUE = 1, 7, 1, 3
CLASS = 0x1_0000  # the queue 10: of interface 4 hangs under 1:4, and so on


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def message(sequence: int, kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 0, sequence, 0) + body


def statistics(sample: QueueSample) -> bytes:
    """Lay the counters out as the kernel does: the basic ones padded to 16 bytes, and attributes of no interest around them."""
    basic = struct.pack("=QIxxxx", sample.sent_bytes, sample.sent_packets)
    queue = struct.pack("=IIIII", sample.queued_packets, sample.backlog_bytes, sample.dropped_packets, 11, sample.overlimits)
    return attribute(BASIC, basic) + attribute(8, bytes(8)) + attribute(QUEUE, queue)


def answer(sequence: int, sample: QueueSample, handle: int = 0, leaf: int = 0) -> bytes:
    tcmsg = struct.pack("=BxxxiIII", 0, 4, handle, 0x1FFFE, leaf)
    return message(sequence, NEW_CLASS, tcmsg + attribute(KIND, b"htb\0") + attribute(STATS2, statistics(sample)) + attribute(3, bytes(5)))


SAMPLE = QueueSample(5_000_000_000, 4_000_000, backlog_bytes=30_280, queued_packets=20, dropped_packets=7, overlimits=12)
STALE = QueueSample(1, 1, 1, 1, 1, 1)
NOT_THERE = struct.pack("=i", -errno.ENOENT) + bytes(16)


def sample(number: int) -> QueueSample:
    return QueueSample(*range(number, number + 6))


class Kernel:
    """A netlink socket. Interface i has a queue 10: under the class 1:i, whose counters are sample(10 * i)."""

    def __init__(self, *_: int) -> None:
        self.asked: list[list[tuple[int, int, int, int]]] = []  # by datagram: flags, sequence, interface, handle
        self.answers: list[bytes] = []
        self.gone: set[int] = set()  # interfaces without a queue
        self.silent: set[int] = set()  # interfaces of which it says nothing
        self.between = lambda answers: answers

    def bind(self, address: tuple[int, int]) -> None:
        pass

    def send(self, datagram: bytes) -> None:
        requests = []
        while datagram:
            length, kind, flags, sequence, _ = struct.unpack_from("=IHHII", datagram)
            _, ifindex, handle, _, _ = struct.unpack_from("=BxxxiIII", datagram, 16)
            assert kind == GET_CLASS
            requests.append((flags, sequence, ifindex, handle))
            datagram = datagram[length:]
        self.asked.append(requests)
        self.answers += self.between([self.answer(*request) for request in requests if request[2] not in self.silent])

    def answer(self, flags: int, sequence: int, ifindex: int, handle: int) -> bytes:
        if flags == DUMP:
            inner = answer(sequence, STALE, handle=CLASS + 0xFFFE)
            found = b"" if ifindex in self.gone else answer(sequence, STALE, CLASS + ifindex, leaf=0x10_0000)
            return inner + found + message(sequence, DONE, bytes(4))
        assert flags == ECHO
        if ifindex in self.gone or handle != CLASS + ifindex:
            return message(sequence, ERROR, NOT_THERE)
        return answer(sequence, sample(10 * ifindex))

    def recv(self, size: int, flags: int) -> bytes:
        assert flags == socket.MSG_DONTWAIT
        if not self.answers:
            raise BlockingIOError
        return self.answers.pop(0)[:size]


@pytest.fixture
def reader(monkeypatch):
    monkeypatch.setattr(socket, "socket", Kernel)
    return QueueReader()


@pytest.fixture
def kernel(reader):
    return reader._socket


@pytest.fixture
def interleaved(kernel):
    """Let other messages come before those of the next requests."""

    def interleaved(*others: bytes) -> None:
        kernel.between = lambda answers: [*others, *answers]

    return interleaved


def test_a_queues_counters_are_those_of_its_class(reader):
    assert reader.read(4, 0x10) == sample(40)


def test_the_class_is_asked_for_once_and_then_known(reader, kernel):
    for _ in range(3):
        reader.read(4, 0x10)
    assert kernel.asked == [
        [(DUMP, 1, 4, 0)],
        [(ECHO, 2, 4, CLASS + 4)],
        [(ECHO, 3, 4, CLASS + 4)],
        [(ECHO, 4, 4, CLASS + 4)],
    ]


def test_answers_to_earlier_requests_and_other_news_are_passed_over(reader, interleaved):
    reader.read(4, 0x10)
    interleaved(answer(2, STALE), message(3, NEW_LINK, bytes(20)))
    assert reader.read(4, 0x10) == sample(40)


@pytest.mark.parametrize("known", [False, True])
def test_a_queue_that_is_not_there_is_an_os_error_that_names_it(reader, kernel, known):
    if known:
        reader.read(4, 0x10)
    kernel.gone = {4}
    with pytest.raises(OSError, match="no queue 10: on interface 4") as caught:
        reader.read(4, 0x10)
    assert caught.value.errno == errno.ENOENT


def test_a_queue_that_comes_back_under_another_class_is_found_there(reader, kernel, monkeypatch):
    reader.read(4, 0x10)
    monkeypatch.setitem(globals(), "CLASS", 0x2_0000)
    with pytest.raises(OSError, match="no queue"):
        reader.read(4, 0x10)
    assert reader.read(4, 0x10) == sample(40)


def test_classes_that_are_told_one_by_one_are_found_too(reader, kernel):
    kernel.between = lambda answers: [one for many in answers for _, _, one in queues._messages(many)]
    assert reader.read_many(QUEUES).samples == SAMPLES


@pytest.mark.parametrize("others", [[message(1, ERROR, NOT_THERE)], [message(1, NEW_LINK, bytes(20))], [bytes(16)]])
def test_classes_that_cannot_be_told_are_not_waited_for(reader, kernel, others):
    kernel.between = lambda answers: others
    with pytest.raises(OSError, match="no queue"):
        reader.read(4, 0x10)


def test_a_queue_of_which_the_kernel_says_nothing_is_an_os_error_and_no_wait(reader, kernel):
    kernel.silent = {4}
    with pytest.raises(OSError, match="no queue"):
        reader.read(4, 0x10)


def test_what_follows_the_message_in_the_buffer_is_not_read_as_part_of_it(reader, kernel):
    reader.read(4, 0x10)
    kernel.between = lambda answers: [answers[0] + attribute(STATS2, statistics(STALE))]
    assert reader.read(4, 0x10) == sample(40)


QUEUES = [(1, 0x10), (2, 0x10), (3, 0x10)]
SAMPLES = [sample(10), sample(20), sample(30)]


def test_many_queues_are_asked_for_in_one_datagram(reader, kernel):
    assert reader.read_many(QUEUES).samples == SAMPLES
    kernel.asked.clear()
    assert reader.read_many(QUEUES).samples == SAMPLES
    assert kernel.asked == [[(ECHO, 7 + i, i + 1, CLASS + i + 1) for i in range(3)]]


def test_many_queues_come_in_the_order_of_the_request_whatever_that_of_the_answers(reader, kernel):
    kernel.between = lambda answers: answers[::-1]
    assert reader.read_many(QUEUES).samples == SAMPLES


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("how", ["gone", "silent"])
def test_a_queue_that_is_gone_does_not_spoil_the_others_and_may_come_back(reader, kernel, known, how):
    if known:
        reader.read_many(QUEUES)
    setattr(kernel, how, {2})
    for _ in range(2):
        assert reader.read_many(QUEUES).samples == [sample(10), None, sample(30)]
    setattr(kernel, how, set())
    assert reader.read_many(QUEUES).samples == SAMPLES


def test_answers_left_over_from_an_earlier_reading_are_not_taken_for_new_ones(reader, kernel, interleaved):
    reader.read_many(QUEUES)
    interleaved(*(answer(sequence, STALE) for sequence in range(1, 7)))
    assert reader.read_many(QUEUES).samples == SAMPLES


def test_the_time_of_many_readings_is_that_of_the_asking_and_not_of_taking_the_answers_up(reader, monkeypatch):
    reader.read_many(QUEUES)
    clock = iter([100.0, 100.25])
    monkeypatch.setattr(queues.time, "monotonic", lambda: next(clock))
    readings = reader.read_many(QUEUES)
    assert (readings.began_s, readings.took_s) == (100.0, 0.25)


def test_more_queues_than_their_answers_have_room_for_are_refused(reader):
    with pytest.raises(ValueError, match="too many"):
        reader.read_many([(1, 1)] * (MOST_AT_ONCE + 1))


@pytest.mark.parametrize("length", range(0, len(answer(1, SAMPLE)) - 12, 3))  # the last attribute is of no interest
def test_an_answer_cut_short_is_an_error_and_not_a_number(reader, kernel, length):
    reader.read(4, 0x10)
    kernel.between = lambda answers: [answers[0][:length]]
    with pytest.raises((OSError, LookupError, struct.error)):
        reader.read(4, 0x10)


longs, words = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


@given(st.builds(QueueSample, longs, words, words, words, words, words))
def test_every_counter_is_read_whole_and_in_its_place(sample):
    whole = answer(1, sample)
    assert queues._at(whole, *queues._places(whole)) == sample


def test_counters_are_found_wherever_they_move_to(reader, kernel):
    reader.read(4, 0x10)

    def moved(answers: list[bytes]) -> list[bytes]:
        _, kind, _, sequence, _ = struct.unpack_from("=IHHII", answers[0])
        return [message(sequence, kind, answers[0][16:36] + attribute(KIND, b"another") + answers[0][36:])]

    kernel.between = moved
    assert reader.read(4, 0x10) == sample(40)
    kernel.between = lambda answers: answers
    assert reader.read(4, 0x10) == sample(40)


@pytest.mark.parametrize("missing", [BASIC, QUEUE])
def test_an_answer_without_the_counters_is_an_error(missing):
    there = attribute(QUEUE, bytes(20)) if missing == BASIC else attribute(BASIC, bytes(16))
    with pytest.raises(LookupError):
        queues._places(bytes(36) + attribute(STATS2, there))


def test_counters_shorter_than_they_should_be_are_an_error():
    with pytest.raises(LookupError):
        queues._places(bytes(36) + attribute(STATS2, attribute(BASIC, bytes(16)) + attribute(QUEUE, bytes(16))))


@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes_at_all_are_taken_apart_without_going_round_in_circles_or_past_the_end(data, wanted):
    with suppress(LookupError):
        start, end = queues._find(data, 0, len(data), wanted)
        assert 0 <= start < end <= len(data)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_an_attribute_shorter_than_its_own_header_ends_the_list(length):
    data = attribute(KIND, b"abcd") + struct.pack("=HH", length, STATS2) + bytes(40)
    assert queues._find(data, 0, len(data), KIND) == (0, 8)
    with pytest.raises(LookupError):
        queues._find(data, 0, len(data), STATS2)
