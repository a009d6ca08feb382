"""Top-k sparsification (Aji and Heafield 2017): send the k largest magnitudes, exactly, with their indices.

NaN and infinities rank above every number, so they are sent first and every replica shows them, as it would without compression.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from workloads.compression.codec import FLOAT16, FLOAT32, HEADER_BYTES, Codec, Header, PayloadError, read_header
from workloads.compression.payload import aligned, new_payload
from workloads.compression.selection import bits_of, float32_row, select_largest, select_largest_torch
from workloads.compression.topk_kernels import are_ascending_below, gather, scatter_add

INDEX_BYTES = 4
VALUE_TYPES = {FLOAT32: torch.float32, FLOAT16: torch.float16}  # as the header names them
LARGEST_HALF = 65504.0
CHUNK = 1 << 18  # values converted at once, so that temporaries stay small


class TopK(Codec):
    """Payload: header, k ascending int32 indices, k values (float16 at ratios below `half_below`); k = max(1, floor(ratio n))."""

    codec_id = 1
    fixed_size = True

    def __init__(self, half_below: float = 0.0, *, force_torch: bool = False) -> None:
        if not 0 <= half_below <= 1:
            raise ValueError(f"half_below {half_below} must be a ratio from 0 to 1")
        self._half_below = half_below
        self._force_torch = force_torch

    def payload_bytes(self, n: int, ratio: float) -> int:
        """Return the length of a payload."""
        return sparse_bytes(kept(n, ratio), self._dtype(ratio))

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of the k largest magnitudes."""
        row = float32_row(flat)
        header = Header(self.codec_id, row.numel(), kept(row.numel(), ratio), self._dtype(ratio))
        payload, indices = begin_sparse(header, row.device)
        if header.k == header.n:
            torch.arange(header.n, out=indices)
        elif row.is_cpu and not self._force_torch:
            select_largest(bits_of(row), indices.numpy())
        else:
            select_largest_torch(row, indices)
        write_values(header, payload, row)
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the sent values at their indices."""
        add_sparse(self.codec_id, buffer, out, scale, force_torch=self._force_torch)

    def _dtype(self, ratio: float) -> int:
        return FLOAT16 if ratio < self._half_below else FLOAT32


def kept(n: int, ratio: float) -> int:
    """Return how many of n elements a ratio keeps."""
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio {ratio} must be above 0 and at most 1")
    # 0.1 * 30 is 3.0000000000000004 and 0.29 * 100 is 28.999999999999996: forgive the last bits before the floor
    return min(n, max(1, math.floor(ratio * n * (1 + 1e-12))))


def sparse_bytes(k: int, dtype: int = FLOAT32) -> int:
    """Return the length of a payload of k indices and values."""
    return HEADER_BYTES + (INDEX_BYTES + VALUE_TYPES[dtype].itemsize) * k


def begin_sparse(header: Header, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return a payload with its header written, and a view of its indices, to be filled."""
    payload, _ = new_payload(header, device, sparse_bytes(header.k, header.dtype) - HEADER_BYTES)
    return payload, _split(header, payload)[0]


def write_values(header: Header, payload: Tensor, row: Tensor) -> None:
    """Write the values at the payload's indices."""
    indices, values = _split(header, payload)
    if header.dtype == FLOAT16:
        for some_indices, some_values in zip(indices.split(CHUNK), values.split(CHUNK), strict=True):
            chosen = row.index_select(0, some_indices)
            # an overflow would turn a large finite value into an infinity: saturate instead, and keep what is not finite
            some_values.copy_(torch.where(chosen.isfinite(), chosen.clamp(-LARGEST_HALF, LARGEST_HALF), chosen))
    elif row.is_cpu:
        gather(bits_of(row), indices.numpy(), bits_of(values))
    else:
        torch.index_select(row, 0, indices, out=values)


def add_sparse(codec_id: int, buffer: Tensor, out: Tensor, scale: float, *, force_torch: bool) -> None:
    """Add `scale` times the values of a payload of indices and values, once all of it is checked."""
    header = read_header(buffer, codec_id)
    if header.dtype not in VALUE_TYPES:
        raise PayloadError(f"payload values of dtype {header.dtype}; a sparse payload holds float32 or float16")
    if buffer.numel() != sparse_bytes(header.k, header.dtype):
        raise PayloadError(f"a payload of {header.k} elements has {sparse_bytes(header.k, header.dtype)} bytes, not {buffer.numel()}")
    if out.numel() != header.n:
        raise PayloadError(f"payload of {header.n} elements for a tensor of {out.numel()}")
    indices, values = _split(header, aligned(buffer.to(out.device)))
    compiled = out.is_cpu and not force_torch
    if not (are_ascending_below(indices.numpy(), header.n) if compiled else _are_ascending_below_torch(indices, header.n)):
        raise PayloadError(f"payload indices are not ascending within {header.n}")
    if compiled and out.dtype == torch.float32 and out.is_contiguous():
        scatter_add(indices.numpy(), values.to(torch.float32).numpy(), scale, out.detach().view(-1).numpy())
    else:
        out.detach().view(-1).index_add_(0, indices, (values.to(torch.float32) * scale).to(out.dtype))


def _split(header: Header, payload: Tensor) -> tuple[Tensor, Tensor]:
    """Return views of a payload's indices and values."""
    values_at = HEADER_BYTES + INDEX_BYTES * header.k
    return payload[HEADER_BYTES:values_at].view(torch.int32), payload[values_at:].view(VALUE_TYPES[header.dtype])


def _are_ascending_below_torch(indices: Tensor, n: int) -> bool:
    if indices.numel() == 0:
        return True
    return bool((indices[0] >= 0) & (indices[-1] < n) & (indices[1:] > indices[:-1]).all())
