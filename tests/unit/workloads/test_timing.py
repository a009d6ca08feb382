import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.timing import clip, split_step, total, union

instants = st.floats(0, 100, allow_nan=False)
intervals = st.lists(st.tuples(instants, instants).map(lambda p: (min(p), max(p))), max_size=8)


@given(intervals)
def test_a_union_is_disjoint_ascending_and_covers_no_more_than_the_sum(given_intervals: list[tuple[float, float]]) -> None:
    merged = union(given_intervals)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))
    assert total(given_intervals) <= sum(b - a for a, b in given_intervals) + 1e-9
    assert all(any(m[0] <= a and b <= m[1] for m in merged) for a, b in given_intervals if b > a)


@given(intervals, instants, instants)
def test_clipping_splits_a_union_without_loss(given_intervals: list[tuple[float, float]], one: float, other: float) -> None:
    start, end = min(one, other), max(one, other)
    parts = total(clip(given_intervals, -1, start)) + total(clip(given_intervals, start, end)) + total(clip(given_intervals, end, 101))
    assert math.isclose(parts, total(given_intervals), abs_tol=1e-9)


@given(st.lists(instants, min_size=4, max_size=4).map(sorted), intervals, intervals)
def test_every_instant_belongs_to_exactly_one_part(
    marks: list[float], encodes: list[tuple[float, float]], decodes: list[tuple[float, float]]
) -> None:
    begin, last_gradient, backward_end, end = marks
    encodes = clip(encodes, begin, backward_end)
    times = split_step(begin, last_gradient, backward_end, end, encodes, decodes)
    assert min(times.compute_s, times.encode_s, times.exchange_s, times.decode_s) >= 0
    assert times.step_s == times.compute_s + times.encode_s + times.exchange_s + times.decode_s
    assert math.isclose(times.step_s, end - begin, abs_tol=1e-9)
    assert math.isclose(times.encode_s, total(encodes), abs_tol=1e-9)


def test_a_step_by_hand() -> None:
    # compute 0-10 with encoding 4-5; exposed 10-20 with encoding 10-12 and decoding 17-19 and 18-20; optimiser 20-23
    times = split_step(0, 10, 20, 23, encodes=[(4, 5), (10, 12)], decodes=[(6, 7), (17, 19), (18, 20)])
    assert (times.compute_s, times.encode_s, times.exchange_s, times.decode_s) == (12, 3, 5, 3)


def test_hidden_communication_costs_nothing() -> None:
    times = split_step(0, 10, 10, 11, encodes=[], decodes=[(5, 9)])
    assert (times.compute_s, times.exchange_s, times.decode_s) == (pytest.approx(11), 0, 0)
