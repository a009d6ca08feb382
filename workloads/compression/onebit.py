"""1-bit SGD (Seide et al. 2014): send the signs; the mean of a tensor's values of one sign stands for each of them.

Meant for error feedback, without which the bias stalls the training.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import Codec, Header
from workloads.compression.packing import pack, unpack
from workloads.compression.payload import (
    add_compiled,
    add_values,
    code_bytes,
    new_payload,
    open_payload,
    read_sizes,
    segments,
    split,
    tensor_sizes,
)
from workloads.compression.quantize_kernels import onebit_add, onebit_encode
from workloads.compression.selection import CHUNK, float32_row

BITS = 1


class OneBit(Codec):
    """Payload: header, k int32 tensor sizes, k pairs of float32 means, bits that are 1 for negatives, every tensor from a new byte on.

    Zeros count as positive: the first mean is of all values that are not negative. Both are NaN in a tensor with NaN or infinity.
    """

    codec_id = 10
    fixed_size = True

    def __init__(self, *, force_torch: bool = False) -> None:
        self._force_torch = force_torch

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all signs."""
        values = float32_row(flat)
        n = values.numel()
        sizes = tensor_sizes(n, sizes)
        k = len(sizes)
        payload, parts = new_payload(Header(self.codec_id, n, k), values.device, 4 * k, 8 * k, code_bytes(sizes, BITS))
        parts[0].view(torch.int32).copy_(torch.tensor(sizes, dtype=torch.int32))
        means, codes = parts[1].view(torch.float32).view(k, 2), parts[2]
        for pair, (elements, where) in zip(means, segments(sizes, BITS), strict=True):
            part, packed = values[elements], codes[where]
            if values.is_cpu and not self._force_torch:
                onebit_encode(part.numpy(), pair.numpy(), packed.numpy())
            else:
                negative = part < 0
                pair.copy_(_means(part, negative))
                packed.copy_(pack(negative.to(torch.uint8), BITS))
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the means."""
        header, body = open_payload(buffer, self.codec_id, out)
        sizes = read_sizes(body, header)
        _, mean_bytes, codes = split(body, 4 * header.k, 8 * header.k, code_bytes(sizes, BITS))
        means = mean_bytes.view(torch.float32).view(header.k, 2)
        if out.is_cpu and not self._force_torch:

            def add(factor: float, row: np.ndarray) -> None:
                for pair, (elements, where) in zip(means.numpy(), segments(sizes, BITS), strict=True):
                    onebit_add(codes.numpy()[where], pair, factor, row[elements])

            add_compiled(out, add, scale)
        else:
            values = torch.empty(header.n, device=out.device)
            for pair, (elements, where) in zip(means, segments(sizes, BITS), strict=True):
                part = values[elements]
                part.copy_(torch.where(unpack(codes[where], BITS, part.numel()) == 1, pair[1], pair[0]))
            add_values(out, values, scale)


def _means(values: Tensor, negative: Tensor) -> Tensor:
    # sums in double precision: those of finite values stay finite, and so tell whether all are
    sums = torch.zeros(2, dtype=torch.float64, device=values.device)
    for chunk in values.split(CHUNK):
        sums += torch.stack([chunk.clamp(min=0).sum(dtype=torch.float64), chunk.clamp(max=0).sum(dtype=torch.float64)])
    negatives = negative.count_nonzero()
    counts = torch.stack([values.numel() - negatives, negatives]).clamp_(min=1)
    return torch.where(sums.isfinite().all(), sums / counts, torch.nan)
