"""Natural compression (Horvath et al. 2019): round every value to a power of two, at random and without bias.

The probability of rounding up is the fraction of the binary number itself. Values up to 2^127, subnormal ones too, keep their
exact mean; larger ones are rounded down, as 2^128 is no float32. Zero stays zero.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import Header
from workloads.compression.packing import pack, packed_bytes, unpack
from workloads.compression.payload import add_compiled, add_values, new_payload, open_dense, split
from workloads.compression.quantize_kernels import natural_add, natural_encode
from workloads.compression.randomness import StochasticCodec, generator
from workloads.compression.selection import float32_row


class Natural(StochasticCodec):
    """Payload: header, n exponents as float32 has them (0 is zero, 255 is NaN or infinity), n sign bits."""

    codec_id = 11
    fixed_size = True

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all values, rounded at random."""
        values, key = float32_row(flat), self._keys.next()
        n = values.numel()
        payload, (exponents, signs) = new_payload(Header(self.codec_id, n, n), values.device, n, packed_bytes(n, 1))
        if values.is_cpu and not self._force_torch:
            natural_encode(values.numpy(), np.uint64(key), exponents.numpy(), signs.numpy())
        else:
            exponents.copy_(_round(values.view(torch.int32), key))
            signs.copy_(pack(values.signbit().to(torch.uint8), 1))
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the powers of two."""
        header, body = open_dense(buffer, self.codec_id, out)
        exponents, signs = split(body, header.n, packed_bytes(header.n, 1))
        if out.is_cpu and not self._force_torch:
            add_compiled(out, lambda factor, row: natural_add(exponents.numpy(), signs.numpy(), factor, row), scale)
        else:
            bits = unpack(signs, 1, header.n).to(torch.int32).bitwise_left_shift_(31)
            add_values(out, bits.bitwise_or_(exponents.to(torch.int32).bitwise_left_shift_(23)).view(torch.float32), scale)


def _round(bits: Tensor, key: int) -> Tensor:
    # adding 23 random bits to the fraction carries as often as the fraction says, exactly
    carries = torch.randint(1 << 23, bits.shape, generator=generator(key, bits.device), dtype=torch.int32, device=bits.device)
    carries = carries.add_(bits & 0x7FFFFF).bitwise_right_shift_(23).to(torch.uint8)
    exponents = (bits >> 23).bitwise_and_(0xFF).to(torch.uint8)
    return exponents.add_(carries.mul_(exponents < 254))
