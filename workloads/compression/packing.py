"""Codes of 1, 2, 4 or 8 bits packed into bytes, the first in the lowest bits: compiled loops, and the same by torch operations."""

from __future__ import annotations

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]


@numba.njit("void(uint8[::1], int64, uint8[::1])", cache=True, nogil=True)
def pack_row(codes: Bytes, bits: int, packed: Bytes) -> None:
    """Pack a row of codes, given in whole bytes; fast where the caller's bits are a constant, so that the loop unrolls."""
    per_byte = 8 // bits
    for byte in range(packed.size):
        joined = np.uint8(0)
        for lane in range(per_byte):
            joined |= codes[byte * per_byte + lane] << np.uint8(lane * bits)
        packed[byte] = joined


@numba.njit("void(uint8[::1], int64, uint8[::1])", cache=True, nogil=True)
def unpack_row(packed: Bytes, bits: int, codes: Bytes) -> None:
    """Undo pack_row."""
    per_byte = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    for byte in range(packed.size):
        for lane in range(per_byte):
            codes[byte * per_byte + lane] = (packed[byte] >> np.uint8(lane * bits)) & mask


@numba.njit("int64(uint8[::1], int64)", cache=True, nogil=True)
def largest_code(packed: Bytes, bits: int) -> int:
    """Return the largest code in a packed row, so that one out of range is found before anything is added."""
    mask = np.uint8((1 << bits) - 1)
    largest = np.uint8(0)
    for shift in range(0, 8, bits):
        for byte in range(packed.size):
            largest = max(largest, (packed[byte] >> np.uint8(shift)) & mask)
    return int(largest)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack a row of uint8 codes by torch operations."""
    per_byte = 8 // bits
    lanes = torch.nn.functional.pad(codes, (0, -codes.numel() % per_byte)).view(-1, per_byte)
    packed = lanes[:, 0].clone()
    for lane in range(1, per_byte):
        packed |= lanes[:, lane] << (lane * bits)
    return packed


def unpack(packed: Tensor, bits: int, n: int) -> Tensor:
    """Return the first n codes of a packed row by torch operations."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] >> shifts) & ((1 << bits) - 1)).view(-1)[:n]


def packed_bytes(n: int, bits: int) -> int:
    """Return how many bytes n codes fill."""
    return (n * bits + 7) // 8
