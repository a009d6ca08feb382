"""How often queues are sampled, what the sampler is told, and what it makes of the kernel's answers."""

from __future__ import annotations

import json
import os
import socket
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.board import Board, OpenFlowReading, QueueInfo, QueueReading
from controller.queues import MOST_AT_ONCE, QueueSample, Readings
from controller.routing import RoutingPolicy, compute_paths
from testbed.emulation import sampler
from testbed.emulation.network import Queue
from testbed.emulation.sampler import UNCERTAINTY_S, Batch, Recorded, job, line, rounds
from testbed.emulation.sampling import WINDOW_S, RecentRates, fine_interval_s, intervals_s, next_tick
from testbed.record import LINK_COLUMNS
from topologies import Direction, LinkSpec, QueueClass, dumbbell, leafspine
from topologies.load import ring_hops

rates = st.floats(1e4, 1e11)
limits = st.integers(0, 10**9)


@given(rates, limits)
def test_a_bottleneck_is_sampled_every_one_to_five_milliseconds(rate_bps, queue_bytes):
    assert 0.001 <= fine_interval_s(rate_bps, queue_bytes) <= 0.005


@given(rates, limits)
def test_a_full_bottleneck_queue_cannot_empty_between_two_samples_unless_it_drains_in_three_milliseconds(rate_bps, queue_bytes):
    drains_in_s = queue_bytes * 8 / rate_bps
    assert fine_interval_s(rate_bps, queue_bytes) <= max(0.001, drains_in_s / 3)


@given(rates, limits, limits)
def test_a_larger_queue_is_never_sampled_more_often(rate_bps, one, other):
    assert fine_interval_s(rate_bps, min(one, other)) <= fine_interval_s(rate_bps, max(one, other))


@given(rates)
def test_other_queues_are_sampled_fifty_times_a_second(rate_bps):
    network = dumbbell(4, LinkSpec(rate_bps / 2), LinkSpec(rate_bps)).with_queues_fixed(1500)
    planned = intervals_s(network)
    assert {planned[direction.name] for direction in network.directions() if not direction.bottleneck} == {0.02}
    assert {planned[direction.name] for direction in network.directions() if direction.bottleneck} < {0.02} | {
        fine_interval_s(rate_bps / 2, 10 * 1514)
    }


def test_of_a_fabric_only_what_the_ring_crosses_is_sampled_finely():
    network = leafspine(4, 2, 4, LinkSpec(10e6), LinkSpec(50e6)).with_queues_fixed(1500)
    routed = network.with_routes(compute_paths(network, RoutingPolicy()).values())
    crossed = {direction.name for path in ring_hops(routed) for direction in path if direction.bottleneck}
    planned = intervals_s(routed)
    assert {name for name, interval_s in planned.items() if interval_s < 0.02} == crossed
    assert 0 < len(crossed) < 16


def test_many_bottlenecks_together_cost_no_more_than_some():
    network = leafspine(32, 16, 4, LinkSpec(10e6), LinkSpec(50e6)).with_queues_fixed(1500)
    planned = intervals_s(network)  # no routes: every link of the fabric is a bottleneck
    fine = [planned[direction.name] for direction in network.directions() if direction.bottleneck]
    assert len(fine) == 128
    assert sum(1 / interval_s for interval_s in fine) == pytest.approx(2000)


def test_a_queue_of_nine_milliseconds_is_sampled_every_three():
    assert fine_interval_s(8e6, 9000) == pytest.approx(0.003)


@given(st.floats(0.0, 1e6), st.floats(0.001, 1.0), st.floats(0.0, 10.0))
def test_the_next_tick_is_the_first_on_the_grid_that_is_not_over(due_s, interval_s, late_s):
    now_s = due_s + late_s
    tick_s = next_tick(due_s, interval_s, now_s)
    assert tick_s > now_s - 1e-6
    assert tick_s <= now_s + interval_s + 1e-6
    ticks = (tick_s - due_s) / interval_s
    assert ticks == pytest.approx(round(ticks), abs=1e-3)


def test_what_was_sampled_a_little_early_is_due_a_whole_interval_after_its_tick():
    assert next_tick(10.0, 0.02, 9.9999) == pytest.approx(10.02)


def test_rates_are_those_of_the_last_hundred_milliseconds():
    rates = RecentRates()
    rates.add(0.0, 0, 0)
    assert (rates.sent_bps, rates.drops_per_s) == (0.0, 0.0)
    for tick in range(1, 101):  # 8 Mbit/s and 50 drops a second for 2 s
        rates.add(tick * 0.02, tick * 20_000, tick)
    assert (rates.sent_bps, rates.drops_per_s) == (pytest.approx(8e6), pytest.approx(50))
    for tick in range(101, 104):  # then nothing: gone after 100 ms
        rates.add(tick * 0.02, 2_000_000, 100)
    assert 0 < rates.sent_bps < 8e6
    for tick in range(104, 107):
        rates.add(tick * 0.02, 2_000_000, 100)
    assert (rates.sent_bps, rates.drops_per_s) == (0.0, 0.0)


def test_rates_are_right_at_every_sampling_interval_and_after_a_pause():
    for times in ([i * 0.001 for i in range(500)], [i * 0.2 for i in range(5)], [0.0, 0.02, 0.04, 5.0, 5.02]):
        rates = RecentRates()
        for time_s in times:
            rates.add(time_s, round(time_s * 1e6), 0)
        assert rates.sent_bps == pytest.approx(8e6, rel=1e-3)


def test_a_queue_that_was_made_anew_has_no_negative_rate():
    rates = RecentRates()
    for time_s, sent, dropped in [(0.0, 10**6, 5), (0.1, 2 * 10**6, 5), (0.2, 1000, 0), (0.3, 101_000, 0)]:
        rates.add(time_s, sent, dropped)
        assert rates.sent_bps >= 0 and rates.drops_per_s >= 0
    assert rates.sent_bps == pytest.approx(8e6)


SPEC = LinkSpec(8e6, queue_bytes=9000)


def test_every_queue_is_sampled_in_its_namespace_under_its_number_on_the_board():
    classes = (QueueClass("training", 6e6, 8e6, 9000), QueueClass("background", 2e6, 4e6, 6000))
    shared = Direction("bottleneck", "s1", "s2", LinkSpec(8e6, queue_bytes=9000, classes=classes), bottleneck=True)
    uplink = Direction("access-h1", "h1", "s1", SPEC, bottleneck=False)
    queues = [Queue(shared, "s1-eth1", None, one, number) for number, one in enumerate(shared.spec.queues())]
    planned = {shared.name: 0.003, uplink.name: 0.02}
    order = job([*queues, Queue(uplink, "h1-eth0", 123, SPEC.queues()[0], 0)], planned, "links.jsonl", "board.bin")
    assert (order["output"], order["board"]) == ("links.jsonl", "board.bin")
    assert [(q["index"], q["interface"], q["handle"], q["namespace_pid"], q["interval_s"]) for q in order["queues"]] == [
        (0, "s1-eth1", 0x10, None, 0.003),
        (1, "s1-eth1", 0x11, None, 0.003),
        (2, "h1-eth0", 0x10, 123, 0.02),
    ]
    told = [tuple(q[key] for key in ("link", "source", "target", "queue", "rate_bps", "queue_bytes")) for q in order["queues"]]
    assert told == [
        ("bottleneck", "s1", "s2", "training", 8e6, 9000),
        ("bottleneck", "s1", "s2", "background", 4e6, 6000),
        ("access-h1", "h1", "s1", "", 8e6, 9000),
    ]
    assert json.loads(json.dumps(order)) == order
    assert {q["window_s"] for q in order["queues"]} == {WINDOW_S}
    slow = job(queues, planned, "links.jsonl", "board.bin", dilation=5.0)
    assert {q["window_s"] for q in slow["queues"]} == {5 * WINDOW_S}


def entry(index=0, interval_s=0.02, namespace_pid=None, handle=0x10):
    return {
        "index": index,
        "link": "bottleneck",
        "source": "s1",
        "target": "s2",
        "queue": "training",
        "interface": f"s1-eth{index}",
        "namespace_pid": namespace_pid,
        "handle": handle,
        "rate_bps": 8e6,
        "queue_bytes": 9000,
        "interval_s": interval_s,
        "window_s": WINDOW_S,
    }


SAMPLE = QueueSample(5_000_000_000, 4_000_000, backlog_bytes=30_280, queued_packets=20, dropped_packets=7, overlimits=12)


def told(recorded, mono_s):
    return json.loads(line(recorded.row(mono_s, SAMPLE)))


@pytest.fixture
def board(tmp_path):
    infos = [QueueInfo(f"queue{i}", "bottleneck", "s1", "s2", "training", 9000, 0.0, True) for i in range(2)]
    return Board.create(tmp_path / "board.bin", infos, [8e6, 16e6])


def test_a_row_tells_the_queue_its_configuration_and_its_counters(board):
    assert told(Recorded(entry(), None), 12.3456789) == {
        "mono_s": 12.345679,
        "link": "bottleneck",
        "source": "s1",
        "target": "s2",
        "queue": "training",
        "queue_bytes": 9000,
        "rate_bps": 8e6,
        "sent_bytes": 5_000_000_000,
        "sent_packets": 4_000_000,
        "dropped_packets": 7,
        "overlimits": 12,
        "backlog_bytes": 30_280,
    }


def test_the_configured_rate_of_a_row_is_that_of_the_moment(board):
    recorded = Recorded(entry(index=1), board)
    assert told(recorded, 1.0)["rate_bps"] == 16e6
    board.set_configured(1, 1.5e6)
    assert told(recorded, 2.0)["rate_bps"] == 1.5e6


def test_a_row_carries_openflows_counters_once_for_each_time_they_were_read(board):
    recorded = Recorded(entry(), board)
    plain = set(told(recorded, 1.0))
    board.write_openflow(0, OpenFlowReading(0.5, 11, 12, 13, 14, 15, 16, 17))
    row = told(recorded, 1.02)
    carried = {key: row[key] for key in set(row) - plain}
    assert carried == {"openflow_mono_s": 0.5, "port_tx_bytes": 11, "queue_tx_bytes": 15, "queue_tx_packets": 16}
    assert set(told(recorded, 1.04)) == plain
    board.write_openflow(0, OpenFlowReading(1.5, 2**40, 12, 13, 14, 15, 16, 17))
    assert told(recorded, 1.06)["port_tx_bytes"] == 2**40


def test_every_column_of_a_row_is_one_of_the_records(board):
    board.write_openflow(0, OpenFlowReading(0.5, 11, 12, 13, 14, 15, 16, 17))
    assert set(told(Recorded(entry(), board), 1.0)) == set(LINK_COLUMNS.names)


def test_a_reading_is_shown_on_the_board_with_its_rates(board):
    recorded = Recorded(entry(), board)
    recorded.show(1.0, SAMPLE, timed=True)
    recorded.show(1.1, SAMPLE._replace(sent_bytes=SAMPLE.sent_bytes + 100_000, dropped_packets=9), timed=True)
    expected = QueueReading(1.1, 5_000_100_000, 4_000_000, 30_280, 20, 9, 12, pytest.approx(8e6), pytest.approx(20))
    assert board.read(0).queue == expected
    assert board.read(1).queue is None


def test_a_reading_without_an_exact_time_is_shown_but_says_nothing_of_the_rates(board):
    recorded = Recorded(entry(), board)
    recorded.show(1.0, SAMPLE, timed=True)
    recorded.show(1.1, SAMPLE._replace(sent_bytes=SAMPLE.sent_bytes + 100_000), timed=True)
    recorded.show(1.2, SAMPLE._replace(sent_bytes=SAMPLE.sent_bytes + 900_000, backlog_bytes=5), timed=False)
    reading = board.read(0).queue
    assert (reading.mono_s, reading.backlog_bytes, reading.rate_bps) == (1.2, 5, pytest.approx(8e6))


class Reader:
    """A namespace whose queues answer as they are told, or all with the same."""

    namespace_pid = None

    def __init__(self):
        self.namespace_pid = Reader.namespace_pid
        self.asked = []
        self.took_s = 0.0
        self.gone = set()

    def read_many(self, addresses):
        self.asked.append(addresses)
        return Readings(1.0, self.took_s, [None if address in self.gone else SAMPLE for address in addresses])


@pytest.fixture
def namespaces(monkeypatch):
    """Namespaces without a kernel; the interface s1-eth7 has number 7 in each."""
    made = []

    @contextmanager
    def network_namespace(pid):
        Reader.namespace_pid = pid
        yield
        Reader.namespace_pid = None

    def reader():
        made.append(Reader())
        return made[-1]

    monkeypatch.setattr(sampler, "network_namespace", network_namespace)
    monkeypatch.setattr(sampler, "QueueReader", reader)
    monkeypatch.setattr(socket, "if_nametoindex", lambda name: int(name.removeprefix("s1-eth")))
    return made


def test_queues_of_one_namespace_that_are_due_together_are_read_by_one_request(namespaces):
    entries = [entry(0, 0.005), entry(1), entry(2, namespace_pid=77), entry(3), entry(4, 0.005), entry(3, handle=0x11)]
    fine, coarse = rounds(entries, None, 10.0)
    rows = []
    fine.sample(rows)
    own, other = namespaces
    assert (own.asked, other.asked, len(rows)) == ([[(0, 0x10), (4, 0x10)]], [], 2)
    coarse.sample(rows)
    assert own.asked[1:] == [[(1, 0x10), (3, 0x10), (3, 0x11)]]
    assert (other.namespace_pid, other.asked, len(rows)) == (77, [[(2, 0x10)]], 6)


def test_more_queues_than_one_request_takes_are_read_by_several(namespaces):
    (coarse,) = rounds([entry(i) for i in range(2 * MOST_AT_ONCE + 1)], None, 10.0)
    rows = []
    coarse.sample(rows)
    assert [len(asked) for asked in namespaces[0].asked] == [MOST_AT_ONCE, MOST_AT_ONCE, 1]
    assert len(rows) == 2 * MOST_AT_ONCE + 1


def test_a_request_that_was_held_up_leaves_no_rows_but_is_shown_on_the_board(board):
    reader, rows = Reader(), []
    batch = Batch(reader, [((i, 0x10), Recorded(entry(i), board)) for i in range(2)])
    reader.took_s = 1.01 * UNCERTAINTY_S
    batch.sample(rows)
    assert rows == []
    assert [one.queue.backlog_bytes for one in board.read_all()] == [30_280, 30_280]
    reader.took_s = 0.99 * UNCERTAINTY_S
    batch.sample(rows)
    assert len(rows) == 2


def test_a_queue_that_is_gone_is_told_once_and_the_others_go_on(board, capsys):
    reader, rows = Reader(), []
    batch = Batch(reader, [((i, 0x10), Recorded(entry(i), board)) for i in range(2)])
    reader.gone = {(0, 0x10)}
    batch.sample(rows)
    batch.sample(rows)
    assert capsys.readouterr().err == "there is no queue s1-eth0 10:\n"
    assert len(rows) == 2
    assert (board.read(0).queue, board.read(1).queue.sent_bytes) == (None, 5_000_000_000)


@pytest.fixture
def sample(monkeypatch, tmp_path, namespaces):
    """Run the sampler over some queues, its input closed after the order; return what it wrote."""

    def sample(*intervals_s: float, board=None) -> list[str]:
        output = tmp_path / "links.jsonl"
        entries = [entry(i, interval_s) for i, interval_s in enumerate(intervals_s)]
        reading, writing = os.pipe()
        os.write(writing, json.dumps({"output": str(output), "board": board, "queues": entries}).encode() + b"\n")
        os.close(writing)
        with open(reading) as stdin:
            monkeypatch.setattr(sampler, "die_with_parent", lambda: None)
            monkeypatch.setattr(sampler.os, "sched_setscheduler", lambda *ignored: None)  # it would hold for all tests that follow
            monkeypatch.setattr("sys.stdin", stdin)
            sampler.main()
        return output.read_text().splitlines()

    return sample


def test_the_sampler_stops_when_its_input_closes_having_sampled_every_queue_once_more(sample):
    assert len(sample(60.0, 90.0)) == 2


def test_a_sampler_that_cannot_keep_up_stops_when_its_input_closes_too(sample):
    assert sample(1e-9)


def test_a_sampler_without_queues_stops_at_once(sample):
    assert sample() == []


def test_the_sampler_writes_to_the_board_it_is_told_of(sample, board):
    sample(0.02, 0.005, board=str(board.path))
    assert [one.queue.overlimits for one in board.read_all()] == [12, 12]
