"""From OpenFlow's answers to the board."""

from __future__ import annotations

import pytest
from os_ken.ofproto.ofproto_v1_3_parser import OFPPortStats, OFPQueueStats

from controller.board import Board, OpenFlowReading, QueueInfo
from controller.openflow_counters import OpenFlowCounters

NOT_COUNTED = 0xFFFFFFFFFFFFFFFF


def info(source: str, target: str, queue: str = "") -> QueueInfo:
    name = f"bottleneck:{source}->{target}"
    return QueueInfo(f"{name}/{queue}" if queue else name, "bottleneck", source, target, queue, 10_000, 0.005, True)


def port(number: int, tx_bytes: int, tx_dropped: int = 0) -> OFPPortStats:
    return OFPPortStats(number, 0, tx_bytes // 100, 17, tx_bytes, 0, tx_dropped, 0, 0, 0, 0, 0, 0, 0, 0)


def queue(port_number: int, number: int, tx_bytes: int) -> OFPQueueStats:
    return OFPQueueStats(port_number, number, tx_bytes, tx_bytes // 100, 0, 0, 0)


@pytest.fixture
def board(tmp_path):
    infos = [info("s1", "s2", "training"), info("s1", "s2", "background"), info("s2", "s1"), info("h1", "s1")]
    return Board.create(tmp_path / "board.bin", infos, [1e6] * 4)


def test_a_reading_holds_the_port_and_the_queue_by_its_position_among_the_classes(board):
    counters = OpenFlowCounters(board)
    counters.add_ports("s1", [port(4, 5000), port(5, 1)])
    counters.add_queues("s1", [queue(4, 0, 3000), queue(4, 1, 2000)])
    counters.publish("s1", {4: "s2", 5: "h1"}, mono_s=12.5)
    readings = [entry.openflow for entry in board.read_all()]
    assert readings == [
        OpenFlowReading(12.5, 5000, 50, 0, 17, 3000, 30, 0),
        OpenFlowReading(12.5, 5000, 50, 0, 17, 2000, 20, 0),
        None,
        None,
    ]


def test_an_answer_may_come_in_parts(board):
    counters = OpenFlowCounters(board)
    counters.add_ports("s2", [port(1, 100)])
    counters.add_ports("s2", [port(2, 700)])
    counters.add_queues("s2", [queue(1, 0, 100)])
    counters.add_queues("s2", [queue(2, 0, 600)])
    counters.publish("s2", {1: "h2", 2: "s1"}, mono_s=1.0)
    assert board.read(2).openflow == OpenFlowReading(1.0, 700, 7, 0, 17, 600, 6, 0)


def test_a_counter_that_the_switch_does_not_keep_is_not_known_and_not_zero(board):
    counters = OpenFlowCounters(board)
    counters.add_ports("s2", [port(2, 700, tx_dropped=NOT_COUNTED)])
    counters.add_queues("s2", [queue(2, 0, 600)])
    counters.publish("s2", {2: "s1"}, mono_s=1.0)
    assert board.read(2).openflow == OpenFlowReading(1.0, 700, 7, None, 17, 600, 6, 0)


def test_an_old_answer_is_not_written_again(board):
    counters = OpenFlowCounters(board)
    counters.add_ports("s2", [port(2, 700)])
    counters.add_queues("s2", [queue(2, 0, 600)])
    counters.publish("s2", {2: "s1"}, mono_s=1.0)
    counters.publish("s2", {2: "s1"}, mono_s=2.0)
    assert board.read(2).openflow.mono_s == 1.0
