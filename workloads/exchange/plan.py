"""What gloo's ring collectives put on the wire, fitted to what TCP_INFO showed.

- All-reduce: every chunk of 1/N goes N-1 hops twice (reduce-scatter, all-gather), cut into segments of at most 1 MiB, at least two.
- Each segment costs 144 bytes of gloo's own framing: 96 to the neighbour that gets the data, 48 to the one that sends it.
- A message sent by itself (messages.py) costs 96 bytes: 48 before it, and 48 by which the receiver said that it is ready.
- A ring step of a collective costs about a whole round trip: with a 20 ms one-way delay an all-reduce of 256 bytes took 4.2 / 8.4 / 12.7
  one-way delays for 2 / 3 / 4 workers. (A handshake would explain it.)

Seen for 2, 3 and 4 workers at 4 kB to 1 MB, and for 2 and 4 workers up to 20 MB: exact, but for 3 workers within 8 bytes
(chunks are rounded). An all-reduce of a few bytes costs less than said here: 148 bytes instead of 580 for one float, 2 workers.
Larger messages take longer than rounds x RTT while TCP's window grows: 80 kB all-reduced took 5.4 / 10.3 / 14.8 one-way delays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FRAMING_BYTES = 144
MESSAGES_PER_SEGMENT = 3
MAX_SEGMENT_BYTES = 1 << 20
MESSAGE_FRAMING_BYTES = 96


@dataclass(frozen=True)
class Plan:
    """What one collective costs one worker; TCP/IP headers are not in it."""

    bytes_sent: int
    bytes_received: int
    rounds: float  # sequential round trips
    messages: int  # each begins a TCP segment of its own

    def __add__(self, other: Plan) -> Plan:
        """Return the cost of both, one after the other."""
        return Plan(
            self.bytes_sent + other.bytes_sent,
            self.bytes_received + other.bytes_received,
            self.rounds + other.rounds,
            self.messages + other.messages,
        )


NOTHING = Plan(0, 0, 0.0, 0)


def plan_allreduce(size_bytes: int, world_size: int) -> Plan:
    """Cost of summing `size_bytes` over all workers."""
    hops = 2 * (world_size - 1)
    segments = max(2, math.ceil(size_bytes / (world_size * MAX_SEGMENT_BYTES)))
    volume = round(hops * size_bytes / world_size) + hops * segments * FRAMING_BYTES
    return Plan(volume, volume, hops, hops * segments * MESSAGES_PER_SEGMENT)
