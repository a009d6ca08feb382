"""TernGrad (Wen et al. 2017): every value becomes -1, 0 or 1 times its tensor's scale, at random and without bias.

Values beyond 2.5 standard deviations are clipped first, since one outlier would raise the noise of its whole tensor. The
deviation is taken about zero: about the mean, a tensor of equal values would be clipped away altogether.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import Header, PayloadError
from workloads.compression.packing import largest_code, pack, unpack
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
from workloads.compression.quantize_kernels import terngrad_add, terngrad_encode
from workloads.compression.randomness import StochasticCodec, generator
from workloads.compression.selection import float32_row

BITS = 2


class TernGrad(StochasticCodec):
    """Payload: header, k int32 tensor sizes, k float32 scales, 2-bit codes 0, 1, 2 for -1, 0, 1, every tensor from a new byte on.

    A tensor with NaN or infinity has the scale NaN.
    """

    codec_id = 9
    fixed_size = True

    def __init__(self, clip_sigmas: float = 2.5, *, force_torch: bool = False) -> None:
        if not clip_sigmas >= 0:
            raise ValueError(f"values are clipped at a positive number of standard deviations, or at 0 not at all; not at {clip_sigmas}")
        self.clip_sigmas = clip_sigmas
        super().__init__(force_torch=force_torch)

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all values, made ternary at random."""
        values, key = float32_row(flat), self._keys.next()
        n = values.numel()
        sizes = tensor_sizes(n, sizes)
        k = len(sizes)
        payload, parts = new_payload(Header(self.codec_id, n, k), values.device, 4 * k, 4 * k, code_bytes(sizes, BITS))
        parts[0].view(torch.int32).copy_(torch.tensor(sizes, dtype=torch.int32))
        scales, codes = parts[1].view(torch.float32), parts[2]
        random = generator(key, values.device)
        for tensor, (elements, where) in enumerate(segments(sizes, BITS)):
            part, packed = values[elements], codes[where]
            if values.is_cpu and not self._force_torch:
                scale = terngrad_encode(part.numpy(), self.clip_sigmas, np.uint64(key), elements.start, packed.numpy())
                scales[tensor] = float(scale)
            else:
                scales[tensor] = _scale(part, self.clip_sigmas)
                packed.copy_(pack(_ternary(part, scales[tensor], random), BITS))
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the signs times their tensors' scales."""
        header, body = open_payload(buffer, self.codec_id, out)
        sizes = read_sizes(body, header)
        _, scale_bytes, codes = split(body, 4 * header.k, 4 * header.k, code_bytes(sizes, BITS))
        scales = scale_bytes.view(torch.float32)
        if out.is_cpu and not self._force_torch:
            _check(largest_code(codes.numpy(), BITS))

            def add(factor: float, row: np.ndarray) -> None:
                for magnitude, (elements, where) in zip(scales.numpy(), segments(sizes, BITS), strict=True):
                    terngrad_add(codes.numpy()[where], magnitude, factor, row[elements])

            add_compiled(out, add, scale)
        else:
            _check(int(unpack(codes, BITS, 4 * codes.numel()).max()) if header.n else 0)
            values = torch.empty(header.n, device=out.device)
            for magnitude, (elements, where) in zip(scales, segments(sizes, BITS), strict=True):
                part = values[elements]
                part.copy_(unpack(codes[where], BITS, part.numel())).sub_(1).mul_(magnitude)
            add_values(out, values, scale)


def _check(code: int) -> None:
    if code > 2:
        raise PayloadError("a TernGrad payload with code 3; 0, 1 and 2 are possible")


def _scale(values: Tensor, clip_sigmas: float) -> Tensor:
    largest = torch.linalg.vector_norm(values, torch.inf)
    scale = largest
    if clip_sigmas:
        # divided by the largest, so that the squares cannot overflow
        relative_sigma = torch.linalg.vector_norm(values / largest) / values.numel() ** 0.5
        scale = torch.fmin(largest, largest * (clip_sigmas * relative_sigma))  # fmin: a tensor of zeros has no sigma
    return torch.where(largest.isfinite(), scale, torch.nan)


def _ternary(values: Tensor, scale: Tensor, random: torch.Generator) -> Tensor:
    thresholds = torch.rand(values.shape, generator=random, device=values.device).mul_(scale)
    positive = (values > thresholds).to(torch.uint8)
    return positive.add_(1).sub_((values < thresholds.neg_()).to(torch.uint8))
