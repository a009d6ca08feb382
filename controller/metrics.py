"""The queues' numbers in Prometheus' text format. Pure: what the board holds goes in, text comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from controller.board import Entry, OpenFlowReading, QueueReading
from controller.telemetry import LinkState, link_state

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
LABELS = ("link", "source", "target", "queue")

Number = float | int | None

_GAUGES: tuple[tuple[str, str, Callable[[LinkState], Number]], ...] = (
    ("configured_rate_bps", "Rate the queue is shaped to, L2 bits a second", lambda s: s.configured_bps),
    ("rate_bps", "Rate sent over about the last 100 ms, L2 bits a second", lambda s: s.sent_bps),
    ("utilisation_ratio", "Rate sent over the configured rate", lambda s: s.utilisation),
    ("backlog_bytes", "Bytes waiting in the queue", lambda s: s.backlog_bytes),
    ("backlog_seconds", "Time the backlog takes to leave at the configured rate", lambda s: _scaled(s.backlog_ms, 1e-3)),
    ("queue_limit_bytes", "Limit of the queue", lambda s: s.queue_bytes),
    ("telemetry_age_seconds", "Time since the queue was read", lambda s: s.age_s),
)
_QUEUE_COUNTERS: tuple[tuple[str, str, Callable[[QueueReading], Number]], ...] = (
    ("sent_bytes", "Bytes sent since the queue was made", lambda q: q.sent_bytes),
    ("sent_packets", "Packets sent since the queue was made", lambda q: q.sent_packets),
    ("dropped_packets", "Packets the queue refused", lambda q: q.dropped_packets),
    ("overlimits", "Times a packet had to wait for its turn", lambda q: q.overlimits),
)
_OPENFLOW_COUNTERS: tuple[tuple[str, str, Callable[[OpenFlowReading], Number]], ...] = (
    ("port_tx_bytes", "Bytes the switch sent by the port", lambda o: o.port_tx_bytes),
    ("port_tx_packets", "Packets the switch sent by the port", lambda o: o.port_tx_packets),
    ("port_tx_dropped", "Packets the port dropped on sending", lambda o: o.port_tx_dropped),
    ("port_rx_bytes", "Bytes the switch received by the port", lambda o: o.port_rx_bytes),
    ("queue_tx_bytes", "Bytes sent by the queue", lambda o: o.queue_tx_bytes),
    ("queue_tx_packets", "Packets sent by the queue", lambda o: o.queue_tx_packets),
    ("queue_tx_errors", "Packets the queue could not send", lambda o: o.queue_tx_errors),
)


def exposition(entries: Sequence[Entry], run: dict[str, str], now_s: float) -> bytes:
    """Return the text for /metrics; what is not known has no line."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Queues(entries, run, now_s))
    return generate_latest(registry)


class _Queues(Collector):
    def __init__(self, entries: Sequence[Entry], run: dict[str, str], now_s: float) -> None:
        self._entries, self._run, self._now_s = entries, run, now_s

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("testbed_run", "The run that is going on", value=self._run)
        states = [(_labels(entry), link_state(entry, self._now_s)) for entry in self._entries]
        for name, text, number in _GAUGES:
            yield _filled(GaugeMetricFamily(f"testbed_link_{name}", text, labels=LABELS), ((who, number(state)) for who, state in states))
        queues = [(_labels(entry), entry.queue) for entry in self._entries if entry.queue is not None]
        for name, text, count in _QUEUE_COUNTERS:
            yield _filled(CounterMetricFamily(f"testbed_link_{name}", text, labels=LABELS), ((who, count(queue)) for who, queue in queues))
        flows = [(_labels(entry), entry.openflow) for entry in self._entries if entry.openflow is not None]
        for name, text, tally in _OPENFLOW_COUNTERS:
            yield _filled(CounterMetricFamily(f"testbed_openflow_{name}", text, labels=LABELS), ((who, tally(flow)) for who, flow in flows))
        ages = ((who, self._now_s - flow.mono_s) for who, flow in flows)
        yield _filled(GaugeMetricFamily("testbed_openflow_age_seconds", "Time since the switch was asked", labels=LABELS), ages)


Family = GaugeMetricFamily | CounterMetricFamily


def _filled(family: Family, values: Iterable[tuple[Sequence[str], Number]]) -> Family:
    for labels, value in values:
        if value is not None and math.isfinite(value):
            family.add_metric(labels, value)
    return family


def _labels(entry: Entry) -> tuple[str, ...]:
    info = entry.info
    return info.link, info.source, info.target, info.queue


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
