"""Take the cheaper way for the ratio at hand: sparse payloads by all-gather, or all of the gradient by all-reduce.

N-1 sparse payloads outgrow the dense ring at a ratio of about 8 / (N x bytes a pair). Every rank computes the same two costs
from the same agreed ratio, so all take the same way. Going dense delivers everything: the memory is emptied by it.
"""

from __future__ import annotations

import torch.distributed as dist

from workloads.compression.memory import Memory
from workloads.compression.topk import TopK
from workloads.exchange.allgather import AllGather
from workloads.exchange.allreduce import AllReduce
from workloads.exchange.exchange import Bucket, Exchange, Transfer
from workloads.exchange.plan import plan_allreduce
from workloads.exchange.ring import plan_ring


class Auto(Exchange):
    """Choose between top-k payloads and the dense sum by the bytes they would put on the wire."""

    def __init__(self, codec: TopK, memory: Memory) -> None:
        self.sparse = AllGather(codec, memory)
        self.dense = AllReduce(memory=memory)
        self._codec = codec

    def bind(self, group: dist.ProcessGroup | None, seed: int) -> None:
        """Bind both ways."""
        super().bind(group, seed)
        self.sparse.bind(group, seed)
        self.dense.bind(group, seed)

    def transfer(self, bucket: Bucket, ratio: float) -> Transfer:
        """Prepare the cheaper transfer."""
        return (self.sparse if self.is_sparse_cheaper(bucket, ratio) else self.dense).transfer(bucket, ratio)

    def is_sparse_cheaper(self, bucket: Bucket, ratio: float) -> bool:
        """Compare what one worker would send."""
        elements = bucket.flat.numel()
        sparse = plan_ring([self._codec.payload_bytes(elements, ratio)] * self.world_size, 0)
        dense = plan_allreduce(elements * bucket.flat.element_size(), self.world_size)
        return sparse.bytes_sent < dense.bytes_sent

    def reset(self) -> None:
        """Reset both ways."""
        self.sparse.reset()
        self.dense.reset()
