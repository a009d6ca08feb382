"""All values, in 32 or 16 bits: what other codecs are measured against, and half the bytes at almost no error.

One path serves every device, as torch copies and converts at the speed of memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workloads.compression.codec import BFLOAT16, FLOAT16, FLOAT32, Codec, Header
from workloads.compression.payload import add_values, new_payload, open_dense, split
from workloads.compression.selection import float32_row

_FORMATS = {torch.float32: (4, FLOAT32), torch.float16: (5, FLOAT16), torch.bfloat16: (6, BFLOAT16)}  # codec id, dtype in the header


class Dense(Codec):
    """Payload: header, n values, rounded to nearest even; finite values beyond the largest 16-bit number become that number."""

    fixed_size = True

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        if dtype not in _FORMATS:
            raise ValueError(f"values are sent as float32, float16 or bfloat16, not {dtype}")
        self.dtype = dtype
        self.codec_id, self._header_dtype = _FORMATS[dtype]

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all values."""
        values = float32_row(flat)
        n = values.numel()
        payload, (body,) = new_payload(Header(self.codec_id, n, n, self._header_dtype), values.device, n * self.dtype.itemsize)
        rounded = body.view(self.dtype)
        rounded.copy_(values)
        if self.dtype != torch.float32 and n:
            _saturate(rounded, values)
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the values."""
        header, body = open_dense(buffer, self.codec_id, out, self._header_dtype)
        (body,) = split(body, header.n * self.dtype.itemsize)
        add_values(out, body.view(self.dtype), scale)


def _saturate(rounded: Tensor, values: Tensor) -> None:
    # a number too large for 16 bits must not look like an overflow of the training itself; an infinity must
    largest = torch.finfo(rounded.dtype).max
    low, high = values.aminmax()
    if not max(-float(low), float(high)) <= largest:  # rare, and NaN too
        rounded.copy_(torch.where(values.isfinite(), rounded.clamp(-largest, largest), rounded))
