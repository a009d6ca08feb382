"""An analytical prediction to stand beside each run: compute + bytes / rate + rounds x RTT, with nothing overlapped."""

from __future__ import annotations

from testbed.emulation.wire import HEADERS_BYTES
from topologies import Network
from topologies.load import longest_rtt_s, phases_of, transfer_s
from topologies.model import ETHERNET_HEADER_BYTES


def predicted_step_s(network: Network, mtu: int, compute_s: float, pattern: str, bytes_sent: list[float], rounds: float) -> float:
    """Predict a step's time from what the workers compute and how much each sends."""
    overhead = (mtu + ETHERNET_HEADER_BYTES) / (mtu - HEADERS_BYTES)
    phases = phases_of(network, pattern, [sent * overhead for sent in bytes_sent])
    return compute_s + sum(transfer_s(network, flows) for flows in phases) + rounds * longest_rtt_s(network, phases[0])
