"""What the exchanges of encoded payloads share: the codec, this worker's end of the group, and the way from gradient to payload to mean."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory
from workloads.exchange.exchange import Bucket, Exchange
from workloads.exchange.messages import Endpoint


class EncodedExchange(Exchange):
    """An exchange of payloads made by a codec, compensated by memories."""

    def __init__(self, codec: Codec, *memories: Memory) -> None:
        self.codec, self._memories = codec, memories
        self.endpoint: Endpoint
        self._seed = 0

    def bind(self, group: dist.ProcessGroup | None, seed: int) -> None:
        """Seed the codec too."""
        super().bind(group, seed)
        self.endpoint = Endpoint(group)
        self._seed = seed
        self.codec.reseed(seed)

    def reset(self) -> None:
        """Empty the memories, begin the random numbers anew."""
        for memory in self._memories:
            memory.reset()
        self.codec.reseed(self._seed)


def encode_compensated(codec: Codec, memory: Memory, bucket: Bucket, ratio: float) -> Tensor:
    """Add what the memory holds, encode, and let the memory keep the rest; the payload is in main memory."""
    compensated = memory.compensate(bucket.index, bucket.layout, bucket.flat)
    payload = codec.encode(compensated, ratio, bucket.sizes)
    memory.keep(bucket.index, compensated, payload, codec)
    return payload.cpu()


def decode_mean(codec: Codec, payloads: list[Tensor], out: Tensor) -> None:
    """Write the mean of payloads."""
    # a sum of half-precision gradients may overflow where their mean does not, and would be rounded at every addition
    mean = out if out.dtype in (torch.float32, torch.float64) else torch.empty_like(out, dtype=torch.float32)
    mean.zero_()
    for payload in payloads:
        codec.add_decoded(payload.to(out.device), mean)
    mean.div_(len(payloads))
    if mean is not out:
        out.copy_(mean)


def payload_limit_bytes(bucket: Bucket) -> int:
    """Return a length no codec's payload exceeds: a megabyte more than twice the gradient, in double precision."""
    return 2 * 8 * bucket.flat.numel() + (1 << 20)
