"""The codec contract: one contiguous uint8 buffer with a header that says what it holds."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

MAGIC = b"NSTB"
VERSION = 1
FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2  # how values are written
_LAYOUT = struct.Struct("<4sBBBxqq")  # magic, version, codec, dtype, pad, n, k; 24 bytes keep the body aligned
HEADER_BYTES = _LAYOUT.size
MAX_ELEMENTS = 1 << 30  # more than any gradient here; a forged header must not allocate the machine away


class PayloadError(ValueError):
    """A buffer that is not a whole payload of the expected codec."""


@dataclass(frozen=True)
class Header:
    """What a payload holds: of n elements, k that the codec counts (sent elements, or tensors it wrote one by one)."""

    codec_id: int
    n: int
    k: int
    dtype: int = FLOAT32

    def pack(self) -> bytes:
        """Return the header's bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, self.codec_id, self.dtype, self.n, self.k)


def read_header(buffer: Tensor, codec_id: int) -> Header:
    """Parse and check the first bytes of a payload."""
    if buffer.dtype != torch.uint8 or buffer.dim() != 1 or not buffer.is_contiguous():
        raise PayloadError("a payload must be one contiguous row of bytes")
    if buffer.numel() < HEADER_BYTES:
        raise PayloadError(f"a payload of {buffer.numel()} bytes is shorter than its header of {HEADER_BYTES}")
    magic, version, codec, dtype, n, k = _LAYOUT.unpack(bytes(buffer[:HEADER_BYTES].tolist()))
    if magic != MAGIC or version != VERSION:
        raise PayloadError(f"not a payload of version {VERSION} (magic {magic!r}, version {version})")
    if codec != codec_id or dtype not in (FLOAT32, FLOAT16, BFLOAT16):
        raise PayloadError(f"payload of codec {codec}, dtype {dtype}; expected codec {codec_id} and a known dtype")
    if not 0 <= k <= n <= MAX_ELEMENTS:
        raise PayloadError(f"payload claims {k} of {n} elements")
    return Header(codec, n, k, dtype)


class Codec(ABC):
    """Turn a flat tensor into a payload and back; deterministic under its seed.

    Any float dtype comes in and is encoded as float32; the decoder adds to a tensor of any float dtype. A tensor with NaN or
    infinities is encoded so that NaN or infinities come out at every receiver, as they would without compression.
    """

    codec_id: int  # unique, stored in the header
    fixed_size: bool  # the payload's length follows from n, the ratio and the sizes alone: all ranks send equal lengths

    @abstractmethod
    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload: uint8, contiguous, header first, on the tensor's device.

        `ratio` is the fraction of elements a sparse codec sends; others ignore it. `sizes` are the element counts of the
        tensors that lie in `flat` one after the other (none: it is one tensor), for codecs that scale each by itself.
        """

    @abstractmethod
    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the decoded payload to `out`; raise PayloadError, leaving `out` alone, if the payload is not whole."""

    def decode(self, buffer: Tensor) -> Tensor:
        """Return the dense float32 tensor a payload stands for."""
        header = read_header(buffer, self.codec_id)
        out = torch.from_numpy(np.zeros(header.n, np.float32)).to(buffer.device)
        self.add_decoded(buffer, out)
        return out

    def reseed(self, seed: int) -> None:  # noqa: B027 - most codecs draw no random numbers
        """Begin the random numbers of a stochastic codec anew."""
