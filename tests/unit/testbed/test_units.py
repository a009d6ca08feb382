"""Units: what people write is read exactly, written back exactly, and refused with a sentence."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import units
from testbed.units import Queue, UnitError

reals = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("40mbit", 40e6), ("40Mbit", 40e6), ("1.5gbit", 1.5e9), ("800kbit", 800e3), ("1e6bit", 1e6), ("0.1 MBIT", 1e5), ("0mbit", 0.0)],
)
def test_rates_are_read_as_bits_per_second(text, rate_bps):
    assert units.parse_rate(text) == rate_bps


@pytest.mark.parametrize(("text", "time_s"), [("5ms", 0.005), ("200us", 0.0002), ("1s", 1.0), ("2min", 120.0), ("0.1ms", 0.0001)])
def test_times_are_read_as_seconds(text, time_s):
    assert units.parse_time(text) == time_s


def test_a_bare_number_is_seconds_only_where_seconds_are_asked_for():
    assert units.parse_seconds(60) == units.parse_seconds("60s") == units.parse_seconds("1min") == 60.0
    with pytest.raises(UnitError, match="5ms or 2min"):
        units.parse_time(60)


@pytest.mark.parametrize(("text", "size"), [("100kB", 100_000), ("64KiB", 65536), ("15000B", 15000), ("1.5MB", 1_500_000)])
def test_sizes_are_read_as_whole_bytes(text, size):
    assert units.parse_size(text) == size


@pytest.mark.parametrize(("value", "fraction"), [("1%", 0.01), (0.01, 0.01), ("0.01", 0.01), (0, 0.0), ("100%", 1.0)])
def test_fractions_are_plain_or_percent(value, fraction):
    assert units.parse_fraction(value) == fraction


@pytest.mark.parametrize(("text", "queue"), [("1bdp", Queue(bdp=1.0)), ("0.5BDP", Queue(bdp=0.5)), ("100kB", Queue(size_bytes=100_000))])
def test_a_queue_is_a_size_or_a_multiple_of_the_bdp(text, queue):
    assert units.parse_queue(text) == queue


@pytest.mark.parametrize("value", ["40", 40, 40.0, "40mb", "40mbps", "mbit", "", "nanmbit", "infmbit", "4 0mbit", None, True, ["40mbit"]])
def test_what_is_not_a_rate_is_refused_with_the_accepted_forms(value):
    with pytest.raises(UnitError, match=r"is not a rate; write a number and bit, kbit, mbit or gbit, such as 40mbit or 1\.5gbit"):
        units.parse_rate(value)


@pytest.mark.parametrize(
    ("parse", "value", "sentence"),
    [
        (units.parse_rate, "-40mbit", "is negative"),
        (units.parse_rate, "1e999bit", "is too large"),
        (units.parse_time, "-1s", "is negative"),
        (units.parse_time, "5m", "such as 5ms"),
        (units.parse_time, float("nan"), "is not a time"),
        (units.parse_seconds, float("inf"), "bare seconds"),
        (units.parse_seconds, -1, "is negative"),
        (units.parse_size, "100kb", "such as 100kB"),
        (units.parse_size, "0.3B", "whole number of bytes"),
        (units.parse_size, "1e999B", "is too large"),
        (units.parse_fraction, "1ms", "such as 1%"),
        (units.parse_fraction, 5, "more than the whole"),
        (units.parse_fraction, -0.1, "is negative"),
        (units.parse_queue, "10", "such as 1bdp"),
        (units.parse_queue, "-1bdp", "is negative"),
    ],
)
def test_bad_quantities_are_refused_with_a_sentence(parse, value, sentence):
    with pytest.raises(UnitError, match=sentence):
        parse(value)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (units.format_rate(40e6), "40mbit"),
        (units.format_rate(1.5e9), "1.5gbit"),
        (units.format_rate(12.0), "12bit"),
        (units.format_time(0.005), "5ms"),
        (units.format_time(60.0), "60s"),
        (units.format_time(0.0), "0s"),
        (units.format_size(100_000), "100kB"),
        (units.format_size(65536), "64KiB"),
        (units.format_size(0), "0B"),
        (units.format_fraction(0.01), "1%"),
        (units.format_queue(Queue(bdp=1.0)), "1bdp"),
        (units.format_queue(Queue(size_bytes=15_000)), "15kB"),
    ],
)
def test_quantities_are_written_as_people_do(written, expected):
    assert written == expected


@given(reals)
def test_rates_and_times_survive_being_written_and_read(value):
    assert units.parse_rate(units.format_rate(value)) == value
    assert units.parse_time(units.format_time(value)) == value
    assert units.parse_seconds(units.format_time(value)) == value


@given(st.floats(min_value=0, max_value=1))
def test_fractions_survive_being_written_and_read(value):
    assert units.parse_fraction(units.format_fraction(value)) == value
    assert units.parse_fraction(value) == value


@given(st.integers(min_value=0, max_value=units.MAX_SIZE_BYTES))
def test_sizes_survive_being_written_and_read(value):
    assert units.parse_size(units.format_size(value)) == value


@given(st.one_of(st.builds(Queue, size_bytes=st.integers(0, 10**12)), st.builds(Queue, bdp=reals)))
def test_queues_survive_being_written_and_read(queue):
    assert units.parse_queue(units.format_queue(queue)) == queue


@given(st.text(max_size=12))
def test_any_text_is_either_read_or_refused_never_a_crash(text):
    for parse in (units.parse_rate, units.parse_time, units.parse_seconds, units.parse_size, units.parse_fraction, units.parse_queue):
        with contextlib.suppress(UnitError):
            parse(text)
