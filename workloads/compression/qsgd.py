"""QSGD (Alistarh et al. 2017): round every value to one of s levels of its bucket's norm, at random and without bias."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from workloads.compression.codec import Header, PayloadError
from workloads.compression.packing import largest_code, pack, packed_bytes, unpack
from workloads.compression.payload import add_compiled, add_values, new_payload, open_dense, split
from workloads.compression.quantize_kernels import LARGEST, ROW, qsgd_add, qsgd_encode
from workloads.compression.randomness import StochasticCodec, generator
from workloads.compression.selection import float32_row

MAX_LEVELS = 127
LEVELS_BYTES = 4


class QSGD(StochasticCodec):
    """Payload: header, int32 levels s, a float32 L2 norm for every bucket of 512, codes 0..2s for the levels -s..s.

    A code has 8 bits, 4 where s is at most 7, 2 where it is 1. A bucket with NaN or infinity has the norm NaN.
    """

    codec_id = 8
    fixed_size = True

    def __init__(self, levels: int = MAX_LEVELS, *, force_torch: bool = False) -> None:
        if not 1 <= levels <= MAX_LEVELS:
            raise ValueError(f"QSGD has 1 to {MAX_LEVELS} levels, not {levels}")
        self.levels = levels
        super().__init__(force_torch=force_torch)

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all values, rounded at random."""
        values, key, bits = float32_row(flat), self._keys.next(), _bits(self.levels)
        n = values.numel()
        payload, parts = new_payload(Header(self.codec_id, n, n), values.device, LEVELS_BYTES, *_part_bytes(n, bits))
        levels, norms, codes = parts[0].view(torch.int32), parts[1].view(torch.float32), parts[2]
        levels.fill_(self.levels)
        if values.is_cpu and not self._force_torch:
            qsgd_encode(values.numpy(), self.levels, bits, np.uint64(key), norms.numpy(), codes.numpy())
        else:
            codes.copy_(pack(_quantize(values, self.levels, key, norms), bits))
        return payload

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times the levels of the norms."""
        header, body = open_dense(buffer, self.codec_id, out)
        levels = int(body[:LEVELS_BYTES].view(torch.int32).item()) if body.numel() >= LEVELS_BYTES else 0
        if not 1 <= levels <= MAX_LEVELS:
            raise PayloadError(f"a QSGD payload with {levels} levels; 1 to {MAX_LEVELS} are possible")
        bits = _bits(levels)
        _, norm_bytes, codes = split(body, LEVELS_BYTES, *_part_bytes(header.n, bits))
        norms = norm_bytes.view(torch.float32)
        if out.is_cpu and not self._force_torch:
            _check(largest_code(codes.numpy(), bits), levels)
            add_compiled(out, lambda factor, row: qsgd_add(codes.numpy(), levels, bits, norms.numpy(), factor, row), scale)
        else:
            unpacked = unpack(codes, bits, header.n)
            _check(int(unpacked.max()) if header.n else 0, levels)
            add_values(out, _rows(unpacked.to(torch.float32).sub_(levels)).mul_((norms / levels)[:, None]).view(-1)[: header.n], scale)


def _bits(levels: int) -> int:
    return 2 if levels == 1 else 4 if levels <= 7 else 8


def _part_bytes(n: int, bits: int) -> tuple[int, int]:
    return 4 * ((n + ROW - 1) // ROW), packed_bytes(n, bits)


def _check(code: int, levels: int) -> None:
    if code > 2 * levels:
        raise PayloadError(f"a QSGD payload with code {code}; {levels} levels have codes up to {2 * levels}")


def _rows(values: Tensor) -> Tensor:
    return torch.nn.functional.pad(values, (0, -values.numel() % ROW)).view(-1, ROW)


def _quantize(values: Tensor, levels: int, key: int, norms: Tensor) -> Tensor:
    # in place where possible: besides the values there are at most two more tensors of their size at a time
    rows = _rows(values.abs())
    largest = torch.linalg.vector_norm(rows, torch.inf, dim=1)
    rows.div_(torch.where(largest > 0, largest, 1)[:, None])  # squares of values divided by the largest cannot overflow
    norm = (torch.linalg.vector_norm(rows, dim=1) * largest).clamp_(max=LARGEST)
    norms.copy_(torch.where(largest.isfinite(), norm, torch.nan))
    rows.mul_((largest / norm * levels)[:, None])
    rows.add_(torch.rand(rows.shape, generator=generator(key, values.device), device=values.device))
    magnitudes = rows.nan_to_num_(nan=0.0).clamp_(max=levels).view(-1)[: values.numel()].to(torch.uint8)
    return torch.where(values < 0, levels - magnitudes, levels + magnitudes)
