"""What a container's process says, through the engine's frames; and why a container ended."""

from __future__ import annotations

import json
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.containers.container import AttachedLines, explained

STDOUT, STDERR = 1, 2


def frame(stream: int, content: bytes) -> bytes:
    return struct.pack(">BxxxL", stream, len(content)) + content


def event(action: str, **attributes: str):
    return {"Action": action, "Actor": {"Attributes": attributes}}


@given(st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=20)), max_size=12), st.integers(1, 7))
def test_frames_are_sorted_however_they_arrive(tmp_path_factory, frames, size):
    log = tmp_path_factory.mktemp("frames") / "log"
    lines = AttachedLines(-1, log)
    whole = b"".join(frame(*one) for one in frames)
    output = b"".join(lines.unwrapped(whole[i : i + size]) for i in range(0, len(whole), size))
    assert output == b"".join(content for stream, content in frames if stream == STDOUT)
    assert (log.read_bytes() if log.exists() else b"") == b"".join(content for stream, content in frames if stream == STDERR)


def test_lines_cross_frames_and_complaints_come_between(tmp_path):
    reader, writer = os.pipe()
    lines = AttachedLines(reader, tmp_path / "log")
    line = json.dumps({"event": "ready"}).encode() + b"\n"
    os.write(writer, frame(STDOUT, line[:5]) + frame(STDERR, b"a warning\n"))
    assert lines.read(1.0) == []
    assert not lines.ended
    os.write(writer, frame(STDOUT, line[5:]))
    assert lines.read(1.0) == [{"event": "ready"}]
    os.close(writer)
    assert lines.read(1.0) == [] and lines.ended
    assert (tmp_path / "log").read_text() == "a warning\n"
    os.close(reader)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([event("start"), event("oom"), event("die", exitCode="137")], "ran out of the memory"),
        ([event("kill", signal="9"), event("die", exitCode="137")], "killed from outside (docker kill, signal 9)"),
        ([event("die", exitCode="3")], "ended with code 3"),
        ([], "ended"),
    ],
)
def test_the_end_of_a_container_is_told_in_words(events, words):
    assert words in explained(events)
