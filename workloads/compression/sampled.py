"""Sampled top-k: guess the threshold from a sample, as Deep Gradient Compression does, and send all that reaches it.

The number sent varies: with a sample of m out of n elements its relative standard deviation is sqrt((1 - ratio) / (m ratio)) or
less, at m = 65,536 1 % at ratio 0.1, 4 % at 0.01 and 12 % at 0.001. Tensors of up to m elements are sampled whole, so that only
equal magnitudes add to k. Where many elements equal the threshold all of them are sent, up to n. Zeros are not sent.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import Codec, Header
from workloads.compression.magnitudes import ABSOLUTE
from workloads.compression.selection import bits_of, count_at_least_torch, find_at_least_torch, float32_row, sample_positions
from workloads.compression.topk import add_sparse, begin_sparse, kept, write_values
from workloads.compression.topk_kernels import count_at_least, find_at_least


class SampledTopK(Codec):
    """Payload as top-k's: header, k ascending int32 indices, k float32 values; 1 <= k <= n."""

    codec_id = 2
    fixed_size = False

    def __init__(self, sample: int = 1 << 16, *, seed: int = 0, force_torch: bool = False) -> None:
        if sample < 1:
            raise ValueError(f"a sample of {sample} elements; take at least one")
        self._sample = sample
        self._force_torch = force_torch
        self._generator = np.random.default_rng(seed)

    def reseed(self, seed: int) -> None:
        """Begin the random positions of the samples anew."""
        self._generator = np.random.default_rng(seed)

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all magnitudes that reach the sampled threshold."""
        row = float32_row(flat)
        threshold = self._threshold(row, ratio)
        compiled = row.is_cpu and not self._force_torch
        count = count_at_least(bits_of(row), np.uint32(threshold)) if compiled else count_at_least_torch(row, threshold)
        header = Header(self.codec_id, row.numel(), max(count, min(1, row.numel())))
        payload, indices = begin_sparse(header, row.device)
        if count == 0:
            indices.zero_()  # nothing but zeros: send the first
        elif compiled:
            find_at_least(bits_of(row), np.uint32(threshold), indices.numpy())
        else:
            find_at_least_torch(row, threshold, indices)
        write_values(header, payload, row)
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the sent values at their indices."""
        add_sparse(self.codec_id, buffer, out, scale, force_torch=self._force_torch)

    def _threshold(self, row: Tensor, ratio: float) -> int:
        """Return the bits of the magnitude that the ratio's share of a sample reaches; at least 1, which leaves out zeros."""
        n, count = row.numel(), min(row.numel(), self._sample)
        rank = kept(count, ratio)
        if rank == 0:
            return 1
        positions = torch.from_numpy(sample_positions(n, count, self._generator)).to(row.device)
        magnitudes = bits_of(row.index_select(0, positions).cpu()) & ABSOLUTE
        magnitudes.partition(count - rank)
        return max(1, int(magnitudes[count - rank]))
