"""Helper processes that speak JSON lines: what they say arrives whole and in order, and their end is noticed."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from testbed.emulation.child import Child, ChildEnded, JsonLines, wait_for_any

PATIENCE_S = 20.0
ECHO = """\
    import json
    import sys

    print("at work", file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write("".join(json.dumps(message) + "\\n" for message in request["say"]))
        sys.stdout.flush()
        if "end" in request:
            sys.exit(request["end"])
"""


@pytest.fixture
def pipe():
    """Return JSON lines and what writes to them; None closes the writing end."""
    reading, writing = os.pipe()

    def write(content):
        nonlocal writing
        if content is None:
            os.close(writing)
            writing = None
        else:
            assert os.write(writing, content) == len(content)

    yield JsonLines(reading), write
    for descriptor in (reading, writing):
        if descriptor is not None:
            os.close(descriptor)


def test_a_line_that_comes_in_pieces_is_one_message_when_it_is_whole(pipe):
    lines, write = pipe
    whole = '{"link": "é"}\n'.encode()
    middle = whole.index("é".encode()) + 1  # within a character
    for piece in (whole[:3], whole[3:middle], whole[middle:-1]):
        write(piece)
        assert lines.read(0) == []
    write(whole[-1:])
    assert lines.read(0) == [{"link": "é"}]


def test_several_lines_at_once_are_as_many_messages_and_the_beginning_of_another_is_kept(pipe):
    lines, write = pipe
    write(b'{"n": 1}\n{"n": 2}\n{"n":')
    assert lines.read(0) == [{"n": 1}, {"n": 2}]
    write(b" 3}\n")
    assert lines.read(0) == [{"n": 3}]


def test_a_message_larger_than_a_pipe_holds_arrives_whole(pipe):
    lines, write = pipe
    content = b'{"text": "%b"}\n' % (b"x" * 100_000)
    write(content[: 1 << 16])
    assert lines.read(0) == []
    write(content[1 << 16 :])
    assert lines.read(0) == [{"text": "x" * 100_000}]


def test_nothing_to_read_is_no_end(pipe):
    lines, write = pipe
    began = time.monotonic()
    assert lines.read(0.05) == []
    assert time.monotonic() - began >= 0.05
    assert not lines.ended
    write(b'{"n": 1}\n')
    assert lines.read(0) == [{"n": 1}]


def test_the_end_is_told_after_the_last_message_and_an_unfinished_line_is_none(pipe):
    lines, write = pipe
    write(b'{"n": 1}\n{"n":')
    write(None)
    assert (lines.read(0), lines.ended) == ([{"n": 1}], False)
    assert (lines.read(0), lines.ended) == ([], True)


def test_after_the_end_nobody_waits(pipe):
    lines, write = pipe
    write(None)
    lines.read(0)
    lines.descriptor = None  # it is not even looked at
    assert lines.read(PATIENCE_S) == []


def test_whoever_waits_for_any_goes_on_when_one_has_something_to_read(pipe):
    lines, write = pipe
    silent, holder = os.pipe()
    write(b"{}\n")
    began = time.monotonic()
    wait_for_any([JsonLines(silent), lines], PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    os.close(silent)
    os.close(holder)
    assert lines.read(0) == [{}]


def test_those_that_have_ended_are_not_waited_for(pipe):
    lines, write = pipe
    write(None)
    lines.read(0)
    began = time.monotonic()
    wait_for_any([lines], 0.05)
    assert time.monotonic() - began >= 0.05


def test_time_that_is_over_is_no_time(pipe):
    began = time.monotonic()
    wait_for_any([pipe[0]], -PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a process that says what it is told to say, and ends when told."""
    (tmp_path / "echoing.py").write_text(dedent(ECHO))
    monkeypatch.chdir(tmp_path)
    started = []

    def start():
        started.append(Child("echoing", tmp_path / "echo.log"))
        return started[-1]

    yield start
    for child in started:
        with suppress(ChildEnded):  # some are made to end badly
            child.stop()
        child._process.stdout.close()


def events(*names):
    return [{"event": name} for name in names]


def heard(child, count):
    """Return the next messages, as many as wanted."""
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += child.hear(PATIENCE_S)
    return found


def test_a_child_answers_what_it_is_told_line_by_line(start):
    child = start()
    child.tell({"say": [{"n": 1}, {"text": "a\nb"}]})
    child.tell({"say": [{"n": 3}]})
    assert heard(child, 3) == [{"n": 1}, {"text": "a\nb"}, {"n": 3}]
    assert child.hear(0) == []


def test_a_child_is_the_process_it_says_it_is(start):
    child = start()
    child.tell({"say": [{}]})
    heard(child, 1)
    assert Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"echoing"]


def test_what_children_complain_of_is_added_to_the_log(start, tmp_path):
    for expected in ("at work\n", "at work\nat work\n"):
        child = start()
        child.tell({"say": [{}]})
        heard(child, 1)
        assert (tmp_path / "echo.log").read_text() == expected


def test_the_end_of_a_child_is_noticed_after_its_last_words(start):
    child = start()
    child.tell({"say": [{"n": 1}], "end": 3})
    assert heard(child, 1) == [{"n": 1}]
    for _ in range(2):
        with pytest.raises(ChildEnded, match=r"^echoing ended with code 3$"):
            heard(child, 1)


def test_the_end_of_a_child_is_noticed_by_who_tells_it_something(start):
    child = start()
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ChildEnded, match=r"^echoing was killed by signal 9$"):
        child.tell({"say": []})


def test_a_child_ends_when_its_input_does_and_stopping_waits_for_it(start):
    child = start()
    child.stop()
    assert not Path(f"/proc/{child.pid}").exists()
    with pytest.raises(ChildEnded, match="code 0"):
        child.hear(0)


def test_waiting_for_an_event_passes_over_others_and_returns_the_first_of_its_kind(start):
    child = start()
    child.tell({"say": [*events("starting", "listening"), {"event": "ready", "n": 1}]})
    child.tell({"say": [{"event": "ready", "n": 2}]})
    assert child.wait_for("ready", PATIENCE_S) == {"event": "ready", "n": 1}


def test_an_event_may_come_after_others_that_came_alone(start):
    child = start()
    child.tell({"say": events("starting")})
    wait_for_any([child.lines], PATIENCE_S)
    child.tell({"say": events("ready")})
    assert child.wait_for("ready", PATIENCE_S) == {"event": "ready"}


def test_an_error_in_place_of_the_event_is_raised_in_its_words(start):
    child = start()
    child.tell({"say": [*events("starting"), {"event": "error", "text": "the port is taken"}, *events("ready")]})
    with pytest.raises(RuntimeError, match=r"^the port is taken$"):
        child.wait_for("ready", PATIENCE_S)


def test_an_event_that_does_not_come_in_time_is_an_error(start):
    child = start()
    child.tell({"say": events("starting")})
    with pytest.raises(RuntimeError, match=r"^echoing was not ready within 0 s$") as caught:
        child.wait_for("ready", 0.05)
    assert caught.type is RuntimeError  # it has not ended


def test_a_child_that_ends_before_the_event_is_not_waited_for(start):
    child = start()
    child.tell({"say": events("starting"), "end": 1})
    with pytest.raises(ChildEnded, match=r"^echoing ended with code 1$"):
        child.wait_for("ready", PATIENCE_S)


def test_whoever_was_killed_with_our_words_unread_has_ended():
    ours, theirs = socket.socketpair()
    with ours:
        ours.send(b"unread")
        theirs.close()
        lines = JsonLines(ours.fileno())
        assert lines.read(PATIENCE_S) == []
        assert lines.ended
