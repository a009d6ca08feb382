"""Work shared among forked processes: the same answers in the same order, whatever happens to a process."""

from __future__ import annotations

import os
import signal

import pytest

from analysis import parallel

HERE = os.getpid()


def test_answers_come_in_order_from_other_processes() -> None:
    answers = parallel.each(lambda thing: (thing * thing, os.getpid()), range(50), processes=3)
    assert [value for value, _ in answers] == [thing * thing for thing in range(50)]
    assert HERE not in {pid for _, pid in answers}


def test_one_processor_or_one_thing_needs_no_process() -> None:
    assert parallel.each(lambda thing: os.getpid(), range(3), processes=1) == [HERE] * 3
    assert parallel.each(lambda thing: os.getpid(), [1], processes=4) == [HERE]
    assert parallel.each(lambda thing: thing, [], processes=4) == []


def test_what_a_killed_process_leaves_is_done_here() -> None:
    def work(thing: int) -> int:
        if thing == 5 and os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return thing

    assert parallel.each(work, range(20), processes=2) == list(range(20))


def test_an_exception_is_raised_here_with_its_own_words() -> None:
    def work(thing: int) -> int:
        if thing == 3:
            raise ValueError("the third thing")
        return thing

    with pytest.raises(ValueError, match="the third thing"):
        parallel.each(work, range(6), processes=2)


def test_no_process_is_left_behind() -> None:
    for pid in set(parallel.each(lambda thing: os.getpid(), range(10), processes=3)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
