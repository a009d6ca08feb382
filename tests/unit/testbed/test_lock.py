"""The machine's lock: a second run waits, a sharing one does not, both know of each other, and a killed one holds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from testbed.lock import MachineLock

HOLD = "import sys; from pathlib import Path; from testbed.lock import MachineLock\n"
HOLD += "with MachineLock(sys.argv[2] == 'share', print, Path(sys.argv[1])): print('held', flush=True); input()"
PATIENCE_S = 30


@pytest.fixture
def lock(tmp_path):
    """Make locks in a folder of the test's own; to be told to wait is a failure unless the test expects it."""

    def unexpected(sentence: str) -> None:
        pytest.fail(f"had to wait: {sentence}")

    def lock(share: bool = False, waiting=unexpected) -> MachineLock:
        return MachineLock(share, waiting, tmp_path)

    return lock


def test_a_free_machine_is_taken_at_once_and_again_after_release(lock):
    for _ in range(2):
        with lock():
            pass


def test_a_second_run_says_who_it_waits_for_and_goes_on_when_the_first_ends(lock):
    waiting, entered = threading.Event(), threading.Event()
    sentences = []

    def told(sentence):
        sentences.append(sentence)
        waiting.set()

    def second():
        with lock(waiting=told):
            entered.set()

    thread = threading.Thread(target=second, daemon=True)
    with lock():
        thread.start()
        assert waiting.wait(PATIENCE_S)
        assert not entered.is_set()
    assert entered.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert len(sentences) == 1
    assert f"process {os.getpid()}" in sentences[0]
    assert "--share" in sentences[0]


def test_a_sharing_run_does_not_wait_for_an_exclusive_one_nor_for_another_sharing_one(lock):
    with lock(), lock(share=True), lock(share=True):
        pass


def test_an_exclusive_run_does_not_wait_for_a_sharing_one(lock):
    with lock(share=True), lock():
        pass


def before_now(tmp_path) -> float:
    """Return a moment before anything was marked, as if earlier uses of the machine were long ago."""
    since = time.time() - 1000
    for file in tmp_path.iterdir():
        os.utime(file, (since - 1000, since - 1000))
    return since


def test_alone_on_the_machine_an_exclusive_run_was_not_shared(lock, tmp_path):
    with lock() as first:
        assert not first.was_shared(before_now(tmp_path))


def test_two_runs_side_by_side_both_know(lock, tmp_path):
    with lock() as exclusive, lock(share=True) as sharing:
        since = before_now(tmp_path)  # so that only the locks can tell
        assert exclusive.was_shared(since)
        assert sharing.was_shared(since)


def test_a_sharing_run_always_says_so_since_it_cannot_know_of_every_other(lock, tmp_path):
    with lock(share=True) as one, lock(share=True) as other:
        since = before_now(tmp_path)
        assert one.was_shared(since)
        assert other.was_shared(since)
    with lock(share=True) as one:
        since = before_now(tmp_path)
        with lock():
            pass
        assert one.was_shared(since)


def test_asking_leaves_the_way_free_for_a_sharing_run(lock, tmp_path):
    with lock() as exclusive:
        since = before_now(tmp_path)
        assert not exclusive.was_shared(since)
        sharing = lock(share=True)
        entering = threading.Thread(target=sharing.__enter__, daemon=True)
        entering.start()
        entering.join(PATIENCE_S)
        assert not entering.is_alive()
        assert exclusive.was_shared(since)
        sharing.__exit__(None, None, None)


def test_asking_does_not_give_the_machine_away(lock, tmp_path):
    with lock() as first:
        first.was_shared(before_now(tmp_path))

        def second_waits(sentence: str) -> None:
            raise InterruptedError(sentence)

        with pytest.raises(InterruptedError), lock(waiting=second_waits):
            pass


def test_a_sharing_run_that_has_come_and_gone_is_remembered(lock, tmp_path):
    with lock() as first:
        since = before_now(tmp_path)
        with lock(share=True):
            pass
        assert first.was_shared(since)
        assert not first.was_shared(time.time() + 1000)


def test_a_sharing_run_that_was_there_before_and_has_gone_since_is_remembered(lock, tmp_path):
    with lock() as first:
        with lock(share=True):
            since = before_now(tmp_path)
        assert first.was_shared(since)


@pytest.mark.parametrize("how", ["alone", "share"])
def test_a_killed_run_holds_nothing(lock, tmp_path, how):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
    finally:
        holder.kill()
        holder.communicate()
    with lock() as first:
        assert not first.was_shared(before_now(tmp_path))
