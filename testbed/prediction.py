"""An analytical prediction to stand beside each run: compute + bytes / rate + rounds x RTT, with nothing overlapped."""

from __future__ import annotations

from testbed.emulation.validity import HEADERS_BYTES
from topologies import Network
from topologies.load import ring_rtt_s, ring_transfer_s
from topologies.model import ETHERNET_HEADER_BYTES


def predicted_step_s(network: Network, mtu: int, compute_s: float, bytes_sent: float, rounds: int) -> float:
    """Predict a step's time from what one worker computes and sends around the ring."""
    wire_bytes = bytes_sent * (mtu + ETHERNET_HEADER_BYTES) / (mtu - HEADERS_BYTES)
    return compute_s + ring_transfer_s(network, wire_bytes) + rounds * ring_rtt_s(network)
