"""Top-k sparsification (Aji and Heafield 2017): send the k largest magnitudes, exactly, with their indices.

NaN and infinities rank above every number, so they are sent first and every replica shows them, as it would without compression.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import HEADER_BYTES, Codec, Header, PayloadError, read_header
from workloads.compression.kernels import are_ascending_below, gather, scatter_add, select_largest

BYTES_PER_ELEMENT = 8  # int32 index + float32 value


class TopK(Codec):
    """Payload: header, k ascending int32 indices, k float32 values; k = max(1, floor(ratio n))."""

    codec_id = 1
    fixed_size = True

    def encode(self, flat: Tensor, ratio: float) -> Tensor:
        """Return the payload of the k largest magnitudes."""
        values = flat.detach().to("cpu", torch.float32).contiguous().view(-1).numpy()
        n = values.size
        k = kept(n, ratio)
        buffer = np.empty(HEADER_BYTES + BYTES_PER_ELEMENT * k, np.uint8)
        buffer[:HEADER_BYTES] = np.frombuffer(Header(self.codec_id, n, k).pack(), np.uint8)
        indices = buffer[HEADER_BYTES : HEADER_BYTES + 4 * k].view(np.int32)
        if k > 0:
            select_largest(values.view(np.uint32), k, indices)
            gather(values, indices, buffer[HEADER_BYTES + 4 * k :].view(np.float32))
        return torch.from_numpy(buffer).to(flat.device)

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the sent values at their indices."""
        header = read_header(buffer, self.codec_id)
        k = header.k
        if buffer.numel() != HEADER_BYTES + BYTES_PER_ELEMENT * k:
            raise PayloadError(f"a top-k payload of {k} elements has {HEADER_BYTES + BYTES_PER_ELEMENT * k} bytes, not {buffer.numel()}")
        if out.numel() != header.n:
            raise PayloadError(f"payload of {header.n} elements for a tensor of {out.numel()}")
        raw = buffer.cpu().numpy()
        if raw.ctypes.data % 4:
            raw = raw.copy()  # a slice of a larger buffer may start anywhere, the compiled loops want whole words
        indices = raw[HEADER_BYTES : HEADER_BYTES + 4 * k].view(np.int32)
        values = raw[HEADER_BYTES + 4 * k :].view(np.float32)
        if not are_ascending_below(indices, header.n):
            raise PayloadError(f"payload indices are not ascending within {header.n}")
        if out.is_cpu and out.dtype == torch.float32 and out.is_contiguous():
            scatter_add(indices, values, scale, out.detach().view(-1).numpy())
        else:
            positions = torch.from_numpy(indices).to(out.device, torch.int64)
            out.view(-1).index_add_(0, positions, torch.from_numpy(values).to(out), alpha=scale)


def kept(n: int, ratio: float) -> int:
    """Return how many of n elements a ratio keeps."""
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio {ratio} must be above 0 and at most 1")
    # 0.1 * 30 is 3.0000000000000004 and 0.29 * 100 is 28.999999999999996: forgive the last bits before the floor
    return min(n, max(1, math.floor(ratio * n * (1 + 1e-12))))
