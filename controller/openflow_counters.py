"""Put what the switches count for their ports and queues on the board."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from controller.board import NOT_COUNTED, Board, OpenFlowReading


class PortCounters(Protocol):
    """One port of an OpenFlow answer."""

    port_no: int
    tx_bytes: int
    tx_packets: int
    tx_dropped: int
    rx_bytes: int


class QueueCounters(Protocol):
    """One queue of an OpenFlow answer."""

    port_no: int
    queue_id: int
    tx_bytes: int
    tx_packets: int
    tx_errors: int


class OpenFlowCounters:
    """Gathers the parts of the answers; a switch answers for its ports first, then for its queues."""

    def __init__(self, board: Board) -> None:
        """Number the queues of each direction in the board's order, as they are numbered on the switch."""
        self._board = board
        self._numbers: dict[tuple[str, str], list[int]] = defaultdict(list)  # by source and target: where its queues are on the board
        for number, info in enumerate(board.infos):
            self._numbers[info.source, info.target].append(number)
        self._ports: dict[str, dict[int, PortCounters]] = defaultdict(dict)
        self._queues: dict[str, dict[tuple[int, int], QueueCounters]] = defaultdict(dict)

    def add_ports(self, switch: str, counters: Iterable[PortCounters]) -> None:
        """Take in a part of the answer for ports."""
        self._ports[switch].update({port.port_no: port for port in counters})

    def add_queues(self, switch: str, counters: Iterable[QueueCounters]) -> None:
        """Take in a part of the answer for queues."""
        self._queues[switch].update({(queue.port_no, queue.queue_id): queue for queue in counters})

    def publish(self, switch: str, neighbours: Mapping[int, str], mono_s: float) -> None:
        """Write what has been gathered, for the directions that leave the switch by the given ports."""
        ports, queues = self._ports.pop(switch, {}), self._queues.pop(switch, {})
        for port_number, neighbour in neighbours.items():
            port = ports.get(port_number)
            for queue_number, number in enumerate(self._numbers.get((switch, neighbour), ())):
                queue = queues.get((port_number, queue_number))
                if port is not None and queue is not None:
                    self._board.write_openflow(number, _reading(mono_s, port, queue))


def _reading(mono_s: float, port: PortCounters, queue: QueueCounters) -> OpenFlowReading:
    port_counts = (port.tx_bytes, port.tx_packets, port.tx_dropped, port.rx_bytes)
    queue_counts = (queue.tx_bytes, queue.tx_packets, queue.tx_errors)
    return OpenFlowReading(mono_s, *(None if count == NOT_COUNTED else count for count in (*port_counts, *queue_counts)))
