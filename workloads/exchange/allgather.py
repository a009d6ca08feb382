"""Give every worker's payload to all the others; each decodes all of them in rank order.

Sparse payloads cannot be summed on the way, so the volume grows with the number of workers: N-1 payloads in and out.
Where the lengths differ from rank to rank a round of lengths goes ahead, sent directly from each to each.
"""

from __future__ import annotations

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory
from workloads.exchange.encoded import EncodedExchange, decode_mean, encode_compensated, payload_limit_bytes
from workloads.exchange.exchange import Bucket, Transfer
from workloads.exchange.messages import LENGTH, LENGTH_BYTES, PAYLOAD, Round, pack_length, read_length, tag
from workloads.exchange.plan import NOTHING, Plan
from workloads.exchange.ring import Ring


class AllGather(EncodedExchange):
    """Average payloads made by a codec and compensated by a memory."""

    def __init__(self, codec: Codec, memory: Memory) -> None:
        super().__init__(codec, memory)
        self.memory = memory

    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare the gathering of one bucket."""
        return _Gathering(self, bucket, ratio)


class _Gathering(Transfer):
    """One bucket's payloads on their way."""

    def __init__(self, exchange: AllGather, bucket: Bucket, ratio: float) -> None:
        self._exchange, self._bucket, self.ratio = exchange, bucket, ratio
        self._lengths: Round | None = None
        self._ring: Ring | None = None
        if not exchange.codec.fixed_size:  # encoding takes a while: the others learn meanwhile that we are ready
            self._lengths = Round(exchange.endpoint, tag(LENGTH, bucket.index), LENGTH_BYTES)

    def encode(self) -> None:
        self._payload = encode_compensated(self._exchange.codec, self._exchange.memory, self._bucket, self.ratio)

    def start(self) -> None:
        if self._lengths is None:
            self._send([self._payload.numel()] * self._exchange.world_size)
        else:
            self._lengths.send(pack_length(self._payload.numel()))

    def wait(self) -> None:
        if self._lengths is not None:
            limit_bytes = payload_limit_bytes(self._bucket)
            self._send([read_length(message, limit_bytes) for message in self._lengths.wait()])
        assert self._ring is not None
        self._payloads = self._ring.wait()

    def decode(self) -> None:
        """Sum the payloads in rank order, then divide: the same operations in the same order on every rank."""
        decode_mean(self._exchange.codec, self._payloads, self._bucket.flat)

    def plan(self) -> Plan:
        assert self._ring is not None
        return self._ring.plan() + (self._lengths.plan() if self._lengths is not None else NOTHING)

    def _send(self, lengths: list[int]) -> None:
        self._ring = Ring(self._exchange.endpoint, tag(PAYLOAD, self._bucket.index), self._payload, lengths)
