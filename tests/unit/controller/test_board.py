"""The board: what is written by one process is read whole by another, and a file that is no board is told from one that is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.board import HOP_BITS, Board, BoardError, OpenFlowReading, QueueInfo, QueueReading

FORWARD = QueueInfo("bottleneck:s1->s2", "bottleneck", "s1", "s2", "", 50_000, 0.005, True)
TRAINING = QueueInfo("access-h1:h1->s1/training", "access-h1", "h1", "s1", "training", 9000, 0.0, False)
QUEUE = QueueReading(12.5, 0x1122_3344_5566_7788, 2**33, 30_280, 20, 7, 2**35, 9.9e6, 3.5)
OPENFLOW = OpenFlowReading(12.0, 2**41, 2**34, 1, 2**42, 2**40, 2**33, 2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "board.bin"


@pytest.fixture
def board(path):
    board = Board.create(path, [FORWARD, TRAINING], [10e6, 100e6])
    yield board
    board.close()


def test_a_new_board_has_the_queues_and_their_rates_and_nothing_else(board, path):
    opened = Board.open(path)
    assert board.path == opened.path == path
    assert opened.infos == (FORWARD, TRAINING)
    assert [entry.info for entry in opened.read_all()] == [FORWARD, TRAINING]
    assert [(entry.configured_bps, entry.hops, entry.queue, entry.openflow) for entry in opened.read_all()] == [
        (10e6, 0, None, None),
        (100e6, 0, None, None),
    ]


def test_what_is_written_here_is_read_there_and_only_in_its_own_queue(board, path):
    opened = Board.open(path)
    board.write_queue(1, QUEUE)
    board.write_openflow(1, OPENFLOW)
    board.set_configured(1, 1e6)
    board.set_hops(1, 0b101)
    assert opened.read(1).queue == QUEUE
    assert opened.read(1).openflow == opened.openflow(1) == OPENFLOW
    assert (opened.read(1).configured_bps, opened.configured_bps(1), opened.read(1).hops) == (1e6, 1e6, 0b101)
    assert (opened.read(0).queue, opened.read(0).openflow, opened.read(0).configured_bps) == (None, None, 10e6)


def test_the_newest_of_many_writings_is_read(board, path):
    opened = Board.open(path)
    for number in range(7):
        board.write_queue(0, replace(QUEUE, sent_bytes=number))
        assert opened.read(0).queue.sent_bytes == number
    board.set_configured(0, 2e6)
    board.set_configured(0, 3e6)
    assert opened.read(0).configured_bps == 3e6


def test_openflow_counters_are_the_same_object_until_there_are_newer_ones(board):
    board.write_openflow(0, OPENFLOW)
    first = board.openflow(0)
    assert board.openflow(0) is first
    board.write_openflow(0, OPENFLOW)
    assert board.openflow(0) is not first


counters = st.integers(0, 2**64 - 1)
numbers = st.floats(allow_nan=False)


@given(st.builds(QueueReading, numbers, counters, counters, counters, counters, counters, counters, numbers, numbers))
def test_every_counter_of_a_queue_comes_back_whole_and_in_its_place(tmp_path_factory, reading):
    board = Board.create(tmp_path_factory.mktemp("board") / "board.bin", [FORWARD], [1e6])
    board.write_queue(0, reading)
    assert board.read(0).queue == reading
    board.close()


counted = st.one_of(st.none(), st.integers(0, 2**64 - 2))


@given(st.builds(OpenFlowReading, numbers, counted, counted, counted, counted, counted, counted, counted))
def test_every_openflow_counter_comes_back_and_what_is_not_counted_stays_unknown(tmp_path_factory, reading):
    board = Board.create(tmp_path_factory.mktemp("board") / "board.bin", [FORWARD], [1e6])
    board.write_openflow(0, reading)
    assert board.read(0).openflow == reading
    board.close()


def test_every_bit_of_the_hops_comes_back_and_more_are_refused(board):
    for mask in (1, 1 << (HOP_BITS - 1), (1 << HOP_BITS) - 1, 0):
        board.set_hops(0, mask)
        assert board.read(0).hops == mask
    for mask in (1 << HOP_BITS, -1):
        with pytest.raises(BoardError, match="256 bits"):
            board.set_hops(0, mask)


def test_queues_are_found_by_name_and_an_unknown_one_is_an_error(board):
    assert [board.index(info.name) for info in board.infos] == [0, 1]
    with pytest.raises(BoardError, match="no queue s9"):
        board.index("s9")


def test_a_board_without_queues_is_a_board(path):
    Board.create(path, [], []).close()
    assert Board.open(path).read_all() == []


@pytest.mark.parametrize(("infos", "rates"), [([FORWARD], []), ([FORWARD, FORWARD], [1e6, 1e6])])
def test_queues_without_a_rate_or_a_name_of_their_own_are_refused_and_leave_no_file(tmp_path, infos, rates):
    with pytest.raises(BoardError):
        Board.create(tmp_path / "board.bin", infos, rates)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_readable_by_everybody_and_takes_the_place_of_an_earlier_one(board, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    again = Board.create(path, [TRAINING], [5e6])
    assert Board.open(path).infos == (TRAINING,)
    assert board.read(0).info == FORWARD  # whoever has the earlier one keeps it
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again.close()


def test_a_closed_board_lets_go_of_the_file(board, path):
    opened = Board.open(path)
    opened.close()
    with pytest.raises(ValueError, match="released"):
        opened.read(0)


@pytest.fixture
def unwritable(board, path, monkeypatch):
    """The board as one without the right to write to it opens it."""
    monkeypatch.setattr(os, "access", lambda *ignored: False)
    board.write_queue(0, QUEUE)
    return Board.open(path)


def test_a_board_that_may_not_be_written_is_read(board, unwritable):
    assert unwritable.read(0).queue == QUEUE
    board.write_queue(0, replace(QUEUE, mono_s=13.0))
    assert unwritable.read(0).queue.mono_s == 13.0


def test_a_board_that_may_not_be_written_refuses_it_with_a_sentence(unwritable):
    for write in (
        lambda: unwritable.set_configured(0, 1.0),
        lambda: unwritable.set_hops(0, 1),
        lambda: unwritable.write_queue(0, QUEUE),
        lambda: unwritable.write_openflow(0, OPENFLOW),
    ):
        with pytest.raises(BoardError, match="reading only"):
            write()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_else_reads_the_board_and_cannot_write_it(board, path):
    board.write_queue(0, QUEUE)
    for folder in [path.parent, *path.parent.parents]:
        if not folder.stat().st_mode & 0o005:
            os.chmod(folder, folder.stat().st_mode | 0o005)
        if folder.name.startswith("pytest-of"):
            break
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            opened = Board.open(path)
            code = 0 if opened.read(0).queue == QUEUE else 2
            opened.write_queue(0, QUEUE)
        except BoardError as error:
            code = code if "reading only" in str(error) else 3
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_missing_file_is_an_error_that_names_it(path):
    with pytest.raises(BoardError, match=r"board\.bin"):
        Board.open(path)


@pytest.mark.parametrize("content", [b"", b"x", b"NSBOARD2", b"\x7fELF" * 1000, bytes(4096)])
def test_a_foreign_file_is_an_error_that_names_it(path, content):
    path.write_bytes(content)
    with pytest.raises(BoardError, match=r"board\.bin"):
        Board.open(path)


def test_a_file_cut_short_anywhere_is_an_error_and_so_is_a_longer_one(board, path):
    whole = path.read_bytes()
    for content in [whole[:length] for length in range(0, len(whole), 61)] + [whole + bytes(64)]:
        path.write_bytes(content)
        with pytest.raises(BoardError):
            Board.open(path)


@given(st.data())
def test_a_damaged_description_is_an_error_or_still_a_board_and_never_anything_else(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("board") / "board.bin"
    Board.create(path, [FORWARD], [1e6]).close()
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(BoardError):
        Board.open(path).close()


def test_a_damaged_record_is_an_error_and_not_a_number(board, path):
    board.write_queue(0, QUEUE)
    at = path.read_bytes().index(QUEUE.sent_bytes.to_bytes(8, sys.byteorder))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    with pytest.raises(BoardError, match="damaged"):
        Board.open(path).read(0)


WRITER = """
import sys
from controller.board import Board, OpenFlowReading, QueueReading

board = Board.open(sys.argv[1])
number = 0
while True:
    number += 1
    n = number * 0x0001_0001_0001  # all bytes change
    board.write_queue(0, QueueReading(number, n, n, n, n, n, n, number, number))
    board.write_openflow(0, OpenFlowReading(number, n, n, n, n, n, n, n))
    board.set_hops(0, n)
"""


@pytest.fixture
def hammering(board, path):
    """Another process that writes queue 0 as fast as it can."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    deadline = time.monotonic() + 60
    while board.read(0).openflow is None and time.monotonic() < deadline:
        assert writer.poll() is None
    yield writer
    writer.kill()
    writer.wait()


def test_no_torn_record_is_ever_seen_while_another_process_writes_without_pause(hammering, path):
    reader = Board.open(path)
    seen = set()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        entry = reader.read(0)
        for reading in (entry.queue, entry.openflow):
            number, *values = astuple(reading)
            assert set(values) <= {int(number) * 0x0001_0001_0001, number}
        seen.add(entry.queue.mono_s)
    assert len(seen) > 100
    assert hammering.poll() is None


def test_a_writer_killed_in_the_midst_leaves_a_whole_record_and_the_next_one_goes_on(hammering, path):
    hammering.kill()
    hammering.wait()
    board = Board.open(path)
    number, *values = astuple(board.read(0).queue)
    assert set(values) <= {int(number) * 0x0001_0001_0001, number}
    board.write_queue(0, QUEUE)
    assert Board.open(path).read(0).queue == QUEUE


def test_a_writer_that_stands_still_in_the_midst_holds_no_reader_up(board, path):
    board.write_queue(0, QUEUE)
    content = path.read_bytes()
    spare = content.index(QUEUE.sent_bytes.to_bytes(8, sys.byteorder)) - 8 - board._queue._kind.copy_bytes  # the copy before it
    with path.open("r+b") as file:
        file.seek(spare)
        file.write(b"half a new record")
    assert Board.open(path).read(0).queue == QUEUE
