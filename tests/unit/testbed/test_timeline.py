"""The timeline: conditions spelt out, in order, within their bounds, and the same for the same seed."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.spec.condition_fields import Surroundings
from testbed.spec.condition_list import read
from testbed.timeline import UNLIMITED, BackgroundFlow, Change, Timeline, dilated, timeline
from topologies import LinkSpec, dumbbell

NETWORK = dumbbell(4, LinkSpec(40e6, 0.005), LinkSpec(100e6), LinkSpec(20e6, 0.005))


@pytest.fixture
def spelt(tmp_path):
    """Return the timeline of conditions written as in a file, with traces in the folder."""

    def spelt(*conditions, seed: int = 1, horizon_s: float = 60.0) -> Timeline:
        return make(list(conditions), seed, horizon_s, tmp_path)

    return spelt


def make(conditions, seed=1, horizon_s=60.0, folder=None) -> Timeline:
    around = Surroundings() if folder is None else Surroundings(folder)
    return timeline(read(conditions, around, NETWORK), NETWORK, seed, horizon_s)


def test_a_step_is_one_change_of_what_it_names():
    made = make([{"at": "30s", "link": "bottleneck", "rate": "10mbit", "delay": "20ms", "jitter": "2ms", "loss": "1%"}])
    assert made.changes == (Change("bottleneck", at_s=30, rate_bps=10e6, delay_s=0.02, jitter_s=0.002, loss=0.01),)


def test_dilated_everything_happens_more_slowly_and_what_counts_bytes_or_steps_stays():
    changes = (
        Change("bottleneck", "forward", at_s=30.0, rate_bps=10e6, delay_s=0.02, jitter_s=0.002, loss=0.01),
        Change("bottleneck", at_s=31.0, rate_bps=UNLIMITED, state="down"),
        Change("bottleneck", at_step=100, rate_bps=0.0),
    )
    flows = (BackgroundFlow(5.0, 8.0, "h1", "h2", "udp", 4, 5e6, 8), BackgroundFlow(1.0, 9.0, "h1", "h2"))
    assert dilated(Timeline(changes, flows), 5.0) == Timeline(
        (
            Change("bottleneck", "forward", at_s=150.0, rate_bps=2e6, delay_s=0.1, jitter_s=0.01, loss=0.01),
            Change("bottleneck", at_s=155.0, rate_bps=UNLIMITED, state="down"),
            Change("bottleneck", at_step=100, rate_bps=0.0),
        ),
        (BackgroundFlow(25.0, 40.0, "h1", "h2", "udp", 4, 1e6, 8), BackgroundFlow(5.0, 45.0, "h1", "h2")),
    )


def test_changes_are_in_the_order_of_time_then_of_steps_then_of_the_file():
    made = make(
        [
            {"at_step": 9, "link": "bottleneck", "loss": 0.1},
            {"at": "5s", "link": "bottleneck", "state": "down"},
            {"at_step": 2, "link": "bottleneck", "rate": "unlimited"},
            {"at": "1s", "link": "access-h1", "rate": "1mbit", "direction": "backward"},
            {"at": "5s", "link": "bottleneck", "state": "up"},
        ]
    )
    assert [(c.at_s, c.at_step, c.state) for c in made.changes] == [
        (1, None, None),
        (5, None, "down"),
        (5, None, "up"),
        (None, 2, None),
        (None, 9, None),
    ]
    assert made.changes[0].direction == "backward"
    assert made.stepped[0].rate_bps == UNLIMITED
    assert len(made.timed) == 3


def test_a_ramp_goes_straight_from_its_first_value_to_its_last():
    ramp = {
        "from": "10s",
        "until": "12s",
        "every": "700ms",
        "link": "bottleneck",
        "ramp": {"rate": ["40mbit", "20mbit"], "loss": [0, "10%"]},
    }
    made = make([ramp])
    assert [c.at_s for c in made.changes] == [10, 10.7, 11.4, 12]
    assert [c.rate_bps for c in made.changes] == pytest.approx([40e6, 33e6, 26e6, 20e6])
    assert [c.loss for c in made.changes] == pytest.approx([0, 0.035, 0.07, 0.1])
    assert made.changes[-1].rate_bps == 20e6


def test_a_walk_begins_at_the_links_own_value_in_its_direction_or_at_the_bound_next_to_it():
    def first(low, high, direction="both"):
        walk = {"every": "1s", "link": "bottleneck", "direction": direction, "walk": {"rate": {"between": [low, high], "step": "1mbit"}}}
        return make([walk]).changes[0].rate_bps

    assert first("5mbit", "50mbit") == 40e6
    assert first("5mbit", "50mbit", "backward") == 20e6
    assert first("5mbit", "30mbit") == 30e6
    assert first("60mbit", "90mbit") == 60e6


def test_a_trace_sets_what_its_rows_say_and_loops(spelt, tmp_path):
    (tmp_path / "a.csv").write_text("t,rate,delay\n0,1mbit,\n2,,5ms\n3,2mbit,1ms\n")
    once = spelt({"from": "10s", "link": "bottleneck", "trace": "a.csv"})
    assert [(c.at_s, c.rate_bps, c.delay_s) for c in once.changes] == [(10, 1e6, None), (12, None, 0.005), (13, 2e6, 0.001)]
    loop = spelt({"link": "bottleneck", "trace": "a.csv", "loop": True, "until": "11s"})
    assert [c.at_s for c in loop.changes] == [0, 2, 3, 4, 6, 7, 8, 10]


def test_a_mahimahi_trace_loops_at_its_last_time(spelt, tmp_path):
    (tmp_path / "a.up").write_text("".join(f"{ms}\n" for ms in range(1, 1001)) + "2000\n")
    made = spelt({"from": "1s", "link": "bottleneck", "mahimahi": "a.up", "bin": "500ms"}, horizon_s=5.5)
    assert [c.at_s for c in made.changes][:4] == [1, 2, 2.5, 3]
    assert [round(c.rate_bps / 1e6, 2) for c in made.changes][:4] == [12, 0.07, 0.38, 12]  # some for the wait after each pause
    assert made.changes[-1].at_s == 5


def test_a_constant_mahimahi_trace_is_one_change(spelt, tmp_path):
    (tmp_path / "a.up").write_text("1\n")
    assert spelt({"link": "bottleneck", "mahimahi": "a.up"}, horizon_s=1e6).changes == (Change("bottleneck", at_s=0, rate_bps=12e6),)


def test_background_flows_begin_and_end_together_and_end_with_the_run():
    made = make(
        [
            {"at": "20s", "background": {"from": "h1", "to": "h3", "flows": 4}},
            {"at": "5s", "for": "10s", "background": {"from": "h2", "to": "h4", "protocol": "udp", "rate": "5mbit", "dscp": 8}},
        ]
    )
    assert made.flows == (
        BackgroundFlow(5, 15, "h2", "h4", "udp", 1, 5e6, 8),
        BackgroundFlow(20, 60, "h1", "h3", "tcp", 4),
    )


def test_a_pattern_is_one_number_of_flows_after_another():
    pattern = {"flows": [1, 2, 3, 4], "each": "60s", "pause": "10s"}
    made = make([{"at": "0s", "background": {"from": "h1", "to": "h3", "pattern": pattern}}], horizon_s=205)
    assert [(f.start_s, f.stop_s, f.flows) for f in made.flows] == [(0, 60, 1), (70, 130, 2), (140, 200, 3)]


def test_links_that_get_a_delay_later_are_named():
    made = make(
        [
            {"at": "1s", "link": "access-h1", "delay": "5ms"},
            {"at": "1s", "link": "access-h2", "rate": "5mbit", "delay": "0s"},
            {"at": "1s", "link": "access-h3", "loss": "1%"},
        ]
    )
    assert made.delayed_links() == {"access-h1", "access-h3"}


times = st.integers(0, 50_000).map(lambda ms: f"{ms}ms")
intervals = st.integers(100, 5000).map(lambda ms: f"{ms}ms")
links = st.sampled_from([link.name for link in NETWORK.links])


@st.composite
def random_conditions(draw) -> list[dict]:
    """A list of conditions, at most one that goes on a link."""
    conditions: list[dict] = [
        {"at": draw(times), "link": draw(links), "rate": draw(st.sampled_from(["unlimited", "3mbit"]))}
        for _ in range(draw(st.integers(0, 4)))
    ]
    for link in draw(st.lists(links, unique=True, max_size=4)):
        low = draw(st.integers(1, 50))
        high = low + draw(st.integers(1, 50))
        start = draw(st.integers(0, 40))
        span = {"from": f"{start}s", "until": f"{start + draw(st.integers(1, 15))}s", "every": draw(intervals), "link": link}
        pair = [f"{low}mbit", f"{high}mbit"]
        walk = {"between": pair, "step": f"{draw(st.floats(0.1, high - low)):.3f}mbit"}
        conditions.append(
            {**span, **draw(st.sampled_from([{"ramp": {"rate": pair}}, {"redraw": {"rate": pair}}, {"walk": {"rate": walk}}]))}
        )
    return conditions


@settings(max_examples=100, deadline=None)
@given(random_conditions(), st.integers(0, 2**31), st.floats(0.1, 60))
def test_any_timeline_is_sorted_within_its_horizon_repeatable_and_plain_json(conditions, seed, horizon_s):
    made = make(conditions, seed, horizon_s)
    at_s = [change.at_s for change in made.changes]
    assert at_s == sorted(at_s)
    assert all(0 <= at < horizon_s for at in at_s)
    assert make(conditions, seed, horizon_s) == made
    assert Timeline.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made
    assert make(conditions, seed, 60.0).changes[: len(made.changes)] == made.changes


@settings(max_examples=100, deadline=None)
@given(random_conditions(), st.integers(0, 2**31))
def test_what_goes_on_changing_stays_within_its_bounds_and_its_time(conditions, seed):
    for condition in conditions:
        values = condition.get("ramp") or condition.get("redraw") or condition.get("walk")
        if values is None:
            continue
        low, high = (
            float(text.removesuffix("mbit")) * 1e6 for text in (values["rate"]["between"] if "walk" in condition else values["rate"])
        )
        first, last = (float(condition[key].removesuffix("s")) for key in ("from", "until"))
        made = make([condition], seed)
        assert made.changes[0].at_s == first
        for change in made.changes:
            assert low - 1e-6 <= change.rate_bps <= high + 1e-6
            assert first <= change.at_s < last or ("ramp" in condition and change.at_s == last)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 35))
def test_a_walk_moves_by_its_step_and_is_turned_back_at_its_bounds(seed, step):
    walk = {"rate": {"between": ["5mbit", "40mbit"], "step": f"{step}mbit"}}
    made = make([{"every": "10ms", "link": "bottleneck", "walk": walk}], seed, 5.0)
    rates = [change.rate_bps for change in made.changes]
    assert len(rates) == 500
    for a, b in pairwise(rates):
        turned = {2 * bound - (a + way * step * 1e6) for bound in (5e6, 40e6) for way in (-1, 1)}
        assert abs(b - a) == step * 1e6 or b in turned
    assert step < 10 or (min(rates) < 5e6 + step * 1e6 and max(rates) > 40e6 - step * 1e6)


def test_another_seed_draws_another_timeline_and_each_condition_draws_its_own():
    def rates(seed):
        redraw = {"every": "1s", "redraw": {"rate": ["5mbit", "40mbit"]}}
        made = make([{**redraw, "link": "access-h1"}, {**redraw, "link": "access-h2"}], seed)
        return [[c.rate_bps for c in made.changes if c.link == link] for link in ("access-h1", "access-h2")]

    first, second = rates(1)
    assert first != second
    assert rates(2)[0] != first
    assert rates(1) == [first, second]
    assert first[:2] == pytest.approx([36726510.44, 18344914.64])  # on every machine
