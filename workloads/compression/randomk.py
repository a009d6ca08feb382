"""Random-k sparsification (Stich et al. 2018): send k values drawn at random, and the key from which their indices are drawn again.

Values are not scaled up by n / k: meant for error feedback, which sends later what is left out now.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.codec import Header
from workloads.compression.payload import add_compiled, new_payload, open_payload, split
from workloads.compression.quantize_kernels import all_finite
from workloads.compression.randomness import StochasticCodec, draw
from workloads.compression.selection import bits_of, float32_row
from workloads.compression.topk import kept
from workloads.compression.topk_kernels import gather, scatter_add

KEY_BYTES = 8


class RandomK(StochasticCodec):
    """Payload: header, uint64 key, k float32 values in the order of their indices; all NaN if the tensor is not finite."""

    codec_id = 7
    fixed_size = True

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of k random values."""
        values, key = float32_row(flat), self._keys.next()
        n = values.numel()
        k = kept(n, ratio)
        payload, (key_bytes, sent_bytes) = new_payload(Header(self.codec_id, n, k), values.device, KEY_BYTES, 4 * k)
        key_bytes.copy_(torch.from_numpy(np.array([key], np.uint64).view(np.uint8)))
        sent, compiled = sent_bytes.view(torch.float32), values.is_cpu and not self._force_torch
        if not (all_finite(values.numpy()) if compiled else values.isfinite().all()):
            sent.fill_(torch.nan)  # at an index that is not drawn NaN would stay unseen, so all that is sent says it
        elif compiled:
            gather(bits_of(values), _indices(key, n, k), bits_of(sent))
        else:
            torch.index_select(values, 0, torch.from_numpy(_indices(key, n, k)).to(values.device), out=sent)
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the sent values at the indices drawn again."""
        header, body = open_payload(buffer, self.codec_id, out)
        key_bytes, sent_bytes = split(body, KEY_BYTES, 4 * header.k)
        key = int(key_bytes.cpu().numpy().view(np.uint64)[0])
        indices, sent = _indices(key, header.n, header.k), sent_bytes.view(torch.float32)
        if out.is_cpu and not self._force_torch:
            add_compiled(out, lambda factor, row: scatter_add(indices, sent.numpy(), factor, row), scale)
        else:
            positions = torch.from_numpy(indices).to(out.device, torch.int64)
            out.detach().put_(positions, (sent * scale).to(out.dtype), accumulate=True)


def _indices(key: int, n: int, k: int) -> NDArray[np.int32]:
    # on the CPU for every device, so that all of them draw the same
    indices = np.empty(k, np.int32)
    draw_distinct(np.uint64(key), n, indices)
    return indices


@numba.njit("void(uint64, int64, int32[::1])", cache=True, nogil=True)
def draw_distinct(key: np.uint64, n: int, indices: NDArray[np.int32]) -> None:
    """Write distinct indices below n, ascending, every set of that many as likely as any other."""
    # 1. mark that many random positions in a bitmap, or those to leave out if they are fewer; 2. collect in order.
    k = indices.size
    leave_out = 2 * k > n
    missing = n - k if leave_out else k
    words = np.zeros((n + 63) // 64, np.uint64)
    width = 0
    while n >> width > 0:
        width += 1
    draws = 0
    while missing > 0:
        position = draw(key, draws) >> np.uint64(64 - width)
        draws += 1
        if position < np.uint64(n):  # else draw again: a remainder would favour low positions
            word, bit = position >> np.uint64(6), np.uint64(1) << (position & np.uint64(63))
            missing -= words[word] & bit == 0
            words[word] |= bit
    found = 0
    for index in range(words.size):
        remaining = ~words[index] if leave_out else words[index]
        position = np.uint64(64 * index)
        while remaining and found < k:
            if remaining & np.uint64(1):
                indices[found] = position
                found += 1
            remaining >>= np.uint64(1)
            position += np.uint64(1)
