"""A synchronous parameter server in the process of rank 0, compressed in both directions, as 3LC was published.

Workers push compressed gradients; the server averages what it decodes, adds what it owes from earlier steps, compresses the
update once and sends the same payload to all. Every worker, the server's own too, applies exactly what was sent. With
`momentum` the server turns the mean into the update of momentum SGD before compressing it; then the workers' optimiser
must be plain SGD: a learning rate times the update is the change of the model, up to which the published system sends it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory
from workloads.exchange.encoded import EncodedExchange, decode_mean, encode_compensated, payload_limit_bytes
from workloads.exchange.exchange import Bucket, Transfer
from workloads.exchange.messages import LENGTH, LENGTH_BYTES, PAYLOAD, pack_length, read_length, tag
from workloads.exchange.plan import MESSAGE_FRAMING_BYTES, Plan

SERVER = 0


class ParameterServer(EncodedExchange):
    """Push compressed gradients to the server, pull the compressed update."""

    pattern = "server"

    def __init__(self, codec: Codec, push_memory: Memory, pull_memory: Memory, momentum: float = 0.0) -> None:
        super().__init__(codec, push_memory, pull_memory)
        self.push_memory, self.pull_memory, self.momentum = push_memory, pull_memory, momentum
        self._velocities: dict[int, tuple[object, Tensor]] = {}

    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare one bucket's push and pull."""
        return _PushPull(self, bucket, ratio)

    def update(self, bucket: Bucket, mean: Tensor) -> Tensor:
        """Return the server's update for a mean gradient."""
        if not self.momentum:
            return mean
        layout, velocity = self._velocities.get(bucket.index, (None, mean))
        if layout != bucket.layout or velocity.shape != mean.shape:
            velocity = torch.zeros_like(mean)
            self._velocities[bucket.index] = (bucket.layout, velocity)
        update = velocity.mul_(self.momentum).add_(mean)
        if not bool(update.isfinite().all()):  # the workers shall see it, but it must not stay for good
            update = update.clone()
            velocity.nan_to_num_(0.0, 0.0, 0.0)
        return update

    def reset(self) -> None:
        """Forget errors and velocity."""
        super().reset()
        self._velocities.clear()


class _PushPull(Transfer):
    """One bucket on its way to the server and back."""

    def __init__(self, exchange: ParameterServer, bucket: Bucket, ratio: float) -> None:
        self._exchange, self._bucket, self.ratio = exchange, bucket, ratio
        self._link = exchange.endpoint
        self._is_server = self._link.rank == SERVER
        self._senders = self._link.peers if self._is_server else [SERVER]
        self._sent_bytes = self._received_bytes = 0
        self._works: list[dist.Work] = []
        self._kept: list[Tensor] = []  # a message must live until it is sent
        self._lengths = [(peer, torch.empty(LENGTH_BYTES, dtype=torch.uint8)) for peer in self._senders]
        self._length_works = [self._link.receive(message, peer, tag(LENGTH, bucket.index)) for peer, message in self._lengths]

    def encode(self) -> None:
        self._pushed = encode_compensated(self._exchange.codec, self._exchange.push_memory, self._bucket, self.ratio)

    def start(self) -> None:
        if not self._is_server:
            self._send(self._pushed, SERVER)

    def wait(self) -> None:
        received = self._receive()
        if self._is_server:
            with self._exchange.clock.work():
                mean = torch.empty_like(self._bucket.flat)
                decode_mean(self._exchange.codec, [self._pushed, *received], mean)
                owed = Bucket(self._bucket.index, self._bucket.layout, self._bucket.sizes, self._exchange.update(self._bucket, mean))
                self._pulled = encode_compensated(self._exchange.codec, self._exchange.pull_memory, owed, self.ratio)
            for peer in self._link.peers:
                self._send(self._pulled, peer)
        else:
            (self._pulled,) = received
        for work in self._works:
            work.wait()

    def decode(self) -> None:
        decode_mean(self._exchange.codec, [self._pulled], self._bucket.flat)

    def plan(self) -> Plan:
        """Return what this rank sent and received; two one-way trips and their handshakes follow each other."""
        messages = 2 * len(self._senders)
        framing = messages * MESSAGE_FRAMING_BYTES
        return Plan(self._sent_bytes + framing, self._received_bytes + framing, 3.0, 2 * messages)

    def _send(self, payload: Tensor, peer: int) -> None:
        length = torch.frombuffer(bytearray(pack_length(payload.numel())), dtype=torch.uint8)
        self._kept.append(length)
        self._works.append(self._link.send(length, peer, tag(LENGTH, self._bucket.index)))
        self._works.append(self._link.send(payload, peer, tag(PAYLOAD, self._bucket.index)))
        self._sent_bytes += LENGTH_BYTES + payload.numel()

    def _receive(self) -> list[Tensor]:
        """Return one payload of each sender, by rank."""
        payloads, works = [], []
        for (peer, message), work in zip(self._lengths, self._length_works, strict=True):
            work.wait()
            length = read_length(message.numpy().tobytes(), payload_limit_bytes(self._bucket))
            payloads.append(torch.empty(length, dtype=torch.uint8))
            works.append(self._link.receive(payloads[-1], peer, tag(PAYLOAD, self._bucket.index)))
            self._received_bytes += LENGTH_BYTES + length
        for work in works:
            work.wait()
        return payloads
