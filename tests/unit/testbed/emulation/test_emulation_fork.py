"""Processes forked from this one: they do their work on pipes and nothing else of ours, and end when they should."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from testbed.emulation.child import Child, ChildEnded
from testbed.emulation.fork import Fork

PATIENCE_S = 20.0


@pytest.fixture
def fork(tmp_path):
    made = []

    def start(work):
        with (tmp_path / "log").open("ab") as errors:
            made.append(Fork(work, errors))
        return made[-1]

    yield start
    for one in made:
        one.send_signal(signal.SIGKILL)
        one.wait(PATIENCE_S)


def echo():
    while chunk := os.read(0, 100):
        os.write(1, chunk.upper())


def test_it_does_its_work_on_its_standard_input_and_output_and_ends_with_it(fork):
    forked = fork(echo)
    forked.stdin.write(b"heard")
    assert forked.stdout.read(5) == b"HEARD"
    assert forked.poll() is None
    forked.stdin.close()
    assert forked.wait(PATIENCE_S) == 0
    assert forked.stdout.read() == b""


def test_its_fault_is_in_the_log_and_in_its_code(fork, tmp_path):
    assert fork(lambda: 1 / 0).wait(PATIENCE_S) == 1
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()


def test_a_signal_is_a_negative_code_and_what_has_ended_is_not_signalled_again(fork):
    forked = fork(echo)
    forked.send_signal(signal.SIGKILL)
    assert forked.wait(PATIENCE_S) == -signal.SIGKILL
    forked.send_signal(signal.SIGKILL)


def test_waiting_ends_when_the_time_is_over(fork):
    with pytest.raises(subprocess.TimeoutExpired):
        fork(echo).wait(0.01)


def test_it_holds_nothing_open_that_is_ours(fork):
    ours, other = os.pipe()
    forked = fork(lambda: os.write(1, repr(sorted(map(int, os.listdir("/proc/self/fd")))).encode()))
    told = forked.stdout.read()
    os.close(ours)
    os.close(other)
    assert told.startswith(b"[0, 1, 2")
    assert len(told.split(b",")) <= 4  # and the folder it read


def test_it_dies_with_the_process_that_forked_it(tmp_path):
    script = textwrap.dedent("""
        import os, sys, time
        from testbed.emulation.fork import Fork
        forked = Fork(lambda: time.sleep(60), sys.stderr.buffer)
        print(forked.pid, flush=True)
        time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pidfd = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    assert select.select([pidfd], [], [], PATIENCE_S)[0]
    os.close(pidfd)


def test_a_child_can_be_forked_and_is_spoken_with_like_any_other(tmp_path):
    def serve():
        for line in sys.stdin:
            print(line.strip(), flush=True)

    child = Child("repeating", tmp_path / "log", serve)
    child.tell({"event": "ready"})
    assert child.wait_for("ready", PATIENCE_S) == {"event": "ready"}
    child.require_alive()
    child.kill()
    with pytest.raises(ChildEnded, match=r"^repeating was killed by signal 9$"):
        child.wait_for("ready", PATIENCE_S)
    assert not Path(f"/proc/{child.pid}").exists()
