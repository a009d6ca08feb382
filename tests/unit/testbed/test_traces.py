"""Traces: what a file says is what a link follows, and what is wrong with it is told by its line."""

from __future__ import annotations

import hashlib
import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.spec.fields import Faults
from testbed.spec.mahimahi import FINEST_MS, payable, rates
from testbed.spec.traces import UNLIMITED, Row, parse_opportunities, parse_table, read_opportunities, read_table

PACKET_BITS = 12_000


def told(parse, text: str) -> list[str]:
    return [f"{line}: {message}" for line, message in parse(text)[1]]


def test_plain_numbers_are_si_and_units_are_those_of_experiment_files():
    rows, faults = parse_table("t,rate,delay,loss\n0,10e6,0.02,0.01\n1.5s,10mbit,20ms,1%\n3,unlimited,0,0\n")
    assert faults == []
    assert rows == (Row(0, 10e6, 0.02, 0.01), Row(1.5, 10e6, 0.02, 0.01), Row(3, UNLIMITED, 0, 0))


def test_columns_may_be_missing_or_in_another_order_and_an_empty_cell_changes_nothing():
    rows, faults = parse_table("# measured on a train\nloss , t\n\n1%, 0\n, 2\n0, 2.5\n")
    assert faults == []
    assert rows == (Row(0, loss=0.01), Row(2), Row(2.5, loss=0))


def test_a_rate_of_a_trace_may_be_zero():
    assert parse_table("t,rate\n0,0\n")[0] == (Row(0, 0.0),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "0: is empty; a trace begins with a header such as t,rate,delay,loss"),
        ("\n# nothing\n", "0: is empty"),
        ("t,rate\n", "1: has a header and no rows"),
        ("rate\n1\n", "1: has no column t"),
        ("t\n1\n", "1: changes nothing; add one or more of the columns rate, delay and loss"),
        ("t,rat\n1,1\n", "1: unknown column 'rat'; did you mean 'rate'?"),
        ("t,rate,rate\n1,1,1\n", "1: column 'rate' is there twice"),
        ("0,5mbit\n1,6mbit\n", "1: unknown column '0'"),
        ("t,rate\n-1,5mbit\n", "2: t: '-1' is negative"),
        ("t,rate\n,5mbit\n", "2: has no time"),
        ("t,rate\nsoon,5mbit\n", "2: t: 'soon' is not a time"),
        ("t,rate\nnan,5mbit\n", "2: t: 'nan' is not a time"),
        ("t,rate\n0,1mbit\n5,1mbit\n\n3,1mbit\n", "5: time 3 does not come after 5; times must rise"),
        ("t,rate\n0,1mbit\n0,2mbit\n", "3: time 0 does not come after 0"),
        ("t,rate\n0,1mbit\n0.009,2mbit\n", "3: time 0.009 comes less than 10ms after 0"),
        ("t,rate\n0\n", "2: has 1 cell, and the header 2"),
        ("t,rate\n0,1mbit,\n", "2: has 3 cells, and the header 2"),
        ("t,rate\n0,-5\n", "2: rate: '-5bit' is negative"),
        ("t,rate\n0,5mb\n", "2: rate: '5mb' is not a rate"),
        ("t,rate\n0,inf\n", "2: rate: 'inf' is not a rate"),
        ("t,delay\n0,5mbit\n", "2: delay: '5mbit' is not a time"),
        ("t,loss\n0,100%\n", "2: loss: must be below 1"),
        ("t,loss\n0,2\n", "2: loss: '2' is more than the whole"),
    ],
)
def test_each_fault_of_a_table_is_told_with_its_line(text, expected):
    found = told(parse_table, text)
    assert [line for line in found if line.startswith(expected)], found


def test_all_faults_of_a_table_are_told():
    assert [line[:2] for line in told(parse_table, "t,rate,loss\n-1,x,2\n1,1,1%\n0,1,0\n")] == ["2:", "2:", "2:", "4:"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "0: is empty"),
        ("\n \n", "0: is empty"),
        ("1\n\n2\n", "2: has no time"),
        ("1\n-2\n", "2: time -2 is negative"),
        ("1\n5\n3\n", "3: time 3 comes after 5; times must not fall"),
        ("1\n1.5\n", "2: '1.5' is not a time in whole milliseconds"),
        ("1\nx\n", "2: 'x' is not"),
        ("1\n999999999999\n", "2: time 999999999999 is too late; a trace may last 7200000 ms"),
        ("0\n0\n", "2: ends at 0 ms"),
        ("t,rate\n", "1: 't,rate' is not"),
    ],
)
def test_each_fault_of_a_mahimahi_trace_is_told_with_its_line(text, expected):
    found = told(parse_opportunities, text)
    assert found and found[0].startswith(expected), found


def test_a_mahimahi_trace_may_repeat_a_time_in_lines_or_in_one():
    assert parse_opportunities("0\n3\n3\n 7 7\n") == ((0, 3, 3, 7, 7), [])


def test_a_file_is_read_relative_to_the_folder_with_its_hash(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbft,rate\r\n0,1mbit\r\n2,2mbit\r\n")
    table = read_table("a.csv", tmp_path)
    assert table.rows == (Row(0, 1e6), Row(2, 2e6))
    assert table.period_s == 4
    assert table.sha256 == hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest()


def test_a_file_that_changes_is_read_again(tmp_path):
    (tmp_path / "a.up").write_text("5\n")
    assert read_opportunities("a.up", tmp_path).times_ms == (5,)
    (tmp_path / "a.up").write_text("50\n")
    assert read_opportunities("a.up", tmp_path).times_ms == (50,)


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe.csv")
    sentences = {
        "none.csv": "none.csv cannot be read: no such file or directory",
        ".": ". is not a file",
        "pipe.csv": "pipe.csv is not a file",
        "binary.csv": "binary.csv cannot be read: it is not UTF-8 text",
    }
    for name, sentence in sentences.items():
        with pytest.raises(Faults) as caught:
            read_table(name, tmp_path)
        assert caught.value.faults == [((), sentence)]


def test_of_many_faults_the_first_are_told_and_the_rest_counted(tmp_path):
    (tmp_path / "a.csv").write_text("t,rate\n" + "0,x\n" * 12)
    with pytest.raises(Faults) as caught:
        read_table("a.csv", tmp_path)
    messages = [message for _, message in caught.value.faults]
    assert messages[0].startswith("a.csv:2: rate: 'x' is not a rate")
    assert messages[-1].endswith(" more faults")
    assert len(messages) == 6


def windows(times_ms: list[int], steps: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the packets of every 1 s window of the looping trace, one a millisecond: those it has, and those the rates carry."""
    period = times_ms[-1]
    per_ms = np.bincount(np.maximum(times_ms, 1) - 1, minlength=period).astype(float)
    edges = [round(at_s * 1000) for at_s, _ in steps] + [period]
    carried = np.concatenate([np.full(b - a, rate / 1000 / PACKET_BITS) for (a, b), (_, rate) in zip(pairwise(edges), steps, strict=True)])
    rounds = -(-(period + 1000) // period)

    def sums(values: np.ndarray) -> np.ndarray:
        total = np.concatenate(([0.0], np.cumsum(np.tile(values, rounds))))
        return total[1000 : 1000 + period] - total[:period]

    return sums(per_ms), sums(carried)


@st.composite
def smooth_traces(draw) -> list[int]:
    """Traces of 1 to 100 Mbit/s, packets at random, whose rate changes at any time up to threefold, and back again before they loop."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32)))
    mbit, there = draw(st.floats(1, 100)), []
    for factor, length_ms in draw(st.lists(st.tuples(st.floats(1 / 3, 3), st.integers(200, 2000)), min_size=1, max_size=5)):
        mbit = min(max(mbit * factor, 1), 100)
        there.append((mbit, length_ms))
    packets = np.concatenate([generator.poisson(mbit / 12, length_ms) for mbit, length_ms in there + there[::-1]])
    return [*np.repeat(np.arange(1, len(packets) + 1), packets).tolist(), len(packets)]


@settings(max_examples=60, deadline=None)
@given(smooth_traces())
def test_any_window_of_a_second_carries_what_the_trace_does_within_5_percent(times_ms):
    trace, carried = windows(times_ms, rates(times_ms))
    assert np.all(np.abs(carried - trace) <= 0.05 * trace + 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300).map(sorted).filter(lambda times: times[-1] > 0), st.integers(10, 1000))
def test_however_a_trace_bursts_nothing_is_lost_and_the_rates_go_astray_by_two_finest_bins_at_most(times_ms, bin_ms):
    steps = rates(times_ms, bin_ms)
    trace, carried = windows(times_ms, steps)
    most = max(np.searchsorted(times_ms, t + 2 * FINEST_MS) - np.searchsorted(times_ms, t) for t in times_ms)
    assert np.all(np.abs(carried - trace) <= np.maximum(0.05 * trace + 1, 2 * most))
    assert carried.mean() == pytest.approx(trace.mean())
    starts = [at_s for at_s, _ in steps]
    assert starts[0] == 0 and starts == sorted(set(starts))
    assert all(b - a >= FINEST_MS / 1000 - 1e-9 for a, b in pairwise(starts))
    assert all(a != b for (_, a), (_, b) in pairwise(steps))


def test_a_constant_trace_is_one_rate_and_an_outage_has_none():
    assert rates([1]) == [(0.0, 12e6)]
    assert rates([*range(1, 1001), 2000]) == [(0.0, 12e6), (1.0, 0.0), (1.9, 120e3)]


def bucket(steps, seconds: float) -> list[float]:
    """Return when an overloaded token bucket that follows the steps sends its packets, in seconds."""
    edges = [*(at_s for at_s, _ in steps[1:]), seconds]
    owed_until_s, sent = 0.0, []
    for (start_s, rate_bps), end_s in zip(steps, edges, strict=True):
        at_s = max(start_s, owed_until_s)
        while at_s < end_s and rate_bps:
            sent.append(at_s)
            at_s = owed_until_s = at_s + 12_000 / rate_bps  # to be paid for at the rate of the moment it left
    return sent


@pytest.mark.parametrize("pause_ms", [130, 60, 400])
def test_a_token_bucket_keeps_to_a_trace_with_pauses(pause_ms):
    times_ms = [start + ms for start in range(0, 8000, 270 + pause_ms) for ms in range(1, 271)]
    period_s = times_ms[-1] / 1000
    assert len(bucket(payable(rates(times_ms), period_s), period_s)) == pytest.approx(len(times_ms), rel=0.05)
