"""The quantizers' compiled loops.

Signatures are explicit, so that compiling happens at import (cached on disk), never inside a measured step. Loops quantize
512 values into a row of one byte each, then pack the row: both halves vectorise, a loop that does both at once does not.
A scale that is NaN makes all it scales NaN, since the codes are zero then and 0 * NaN is NaN.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from workloads.compression.magnitudes import largest_bits
from workloads.compression.packing import pack_row, unpack_row
from workloads.compression.randomness import draw, uniform

ROW = 512  # values quantized at a time; also QSGD's bucket
LARGEST = float(np.finfo(np.float32).max)
INFINITY = np.uint32(0x7F800000)  # its bits

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@numba.njit("boolean(float32[::1])", cache=True, nogil=True)
def all_finite(values: Floats) -> bool:
    """Tell whether there is neither NaN nor infinity."""
    return bool(largest_bits(values.view(np.uint32)) < INFINITY)


@numba.njit("float32(float32[::1])", cache=True, nogil=True)
def largest_magnitude(values: Floats) -> np.float32:
    """Return the largest magnitude; NaN if not all values are finite."""
    largest = np.full(1, largest_bits(values.view(np.uint32)), np.uint32)
    return np.float32(largest.view(np.float32)[0] if largest[0] < INFINITY else np.nan)


@numba.njit("float64(float32[::1])", cache=True, nogil=True, fastmath={"reassoc"})
def sum_of_squares(values: Floats) -> float:
    """Return the sum of squares, which no finite values overflow; the order is the compiler's, to use all lanes."""
    total = 0.0
    for i in range(values.size):
        total += np.float64(values[i]) * np.float64(values[i])
    return total


@numba.njit("void(float32[::1], int64, int64, uint64, float32[::1], uint8[::1])", cache=True, nogil=True)
def qsgd_encode(values: Floats, levels: int, bits: int, key: np.uint64, norms: Floats, packed: Bytes) -> None:
    """Round every bucket's values to levels of its norm, up or down at random."""
    codes = np.empty(ROW, np.uint8)
    row_bytes = ROW * bits // 8
    for bucket in range(norms.size):
        first = bucket * ROW
        row = values[first : first + ROW]
        squares = sum_of_squares(row)
        norm = np.float32(min(np.sqrt(squares), LARGEST)) if squares < np.inf else np.float32(np.nan)
        norms[bucket] = norm
        codes[:] = levels
        codes[row.size :] = 0
        if norm > 0:
            per_norm = levels / np.float64(norm)
            for i in range(row.size):
                position = abs(row[i]) * per_norm
                low = np.int32(position)
                level = min(low + np.int32(uniform(key, first + i) < position - low), np.int32(levels))
                codes[i] = np.uint8(levels + (level if row[i] >= 0 else -level))
        row_packed = packed[bucket * row_bytes : (bucket + 1) * row_bytes]
        if bits == 8:
            pack_row(codes, 8, row_packed)
        elif bits == 4:
            pack_row(codes, 4, row_packed)
        else:
            pack_row(codes, 2, row_packed)


@numba.njit("void(uint8[::1], int64, int64, float32[::1], float32, float32[::1])", cache=True, nogil=True)
def qsgd_add(packed: Bytes, levels: int, bits: int, norms: Floats, scale: float, out: Floats) -> None:
    """Add what qsgd_encode wrote."""
    codes = np.empty(ROW, np.uint8)
    row_bytes = ROW * bits // 8
    for bucket in range(norms.size):
        row_packed = packed[bucket * row_bytes : (bucket + 1) * row_bytes]
        if bits == 8:
            unpack_row(row_packed, 8, codes)
        elif bits == 4:
            unpack_row(row_packed, 4, codes)
        else:
            unpack_row(row_packed, 2, codes)
        row = out[bucket * ROW : (bucket + 1) * ROW]
        level = norms[bucket] / np.float32(levels)
        for i in range(row.size):
            row[i] += scale * (level * np.float32(np.int32(codes[i]) - np.int32(levels)))


@numba.njit("float32(float32[::1], float64, uint64, int64, uint8[::1])", cache=True, nogil=True)
def terngrad_encode(values: Floats, clip_sigmas: float, key: np.uint64, first: int, packed: Bytes) -> np.float32:
    """Write one tensor's signs, each kept with the probability |value| / scale; return the scale."""
    scale = largest_magnitude(values)
    if clip_sigmas > 0:
        limit = np.float32(clip_sigmas * np.sqrt(sum_of_squares(values) / values.size))
        scale = limit if limit < scale else scale
    codes = np.empty(ROW, np.uint8)
    for start in range(0, values.size, ROW):
        row = values[start : start + ROW]
        codes[row.size :] = 0
        for i in range(row.size):
            threshold = uniform(key, first + start + i) * scale
            codes[i] = np.uint8(1 + np.int32(row[i] > threshold) - np.int32(-row[i] > threshold))
        pack_row(codes, 2, packed[start // 4 : (start + ROW) // 4])
    return scale


@numba.njit("void(uint8[::1], float32, float32, float32[::1])", cache=True, nogil=True)
def terngrad_add(packed: Bytes, magnitude: float, scale: float, out: Floats) -> None:
    """Add what terngrad_encode wrote."""
    codes = np.empty(ROW, np.uint8)
    for start in range(0, out.size, ROW):
        unpack_row(packed[start // 4 : (start + ROW) // 4], 2, codes)
        row = out[start : start + ROW]
        for i in range(row.size):
            row[i] += scale * (magnitude * np.float32(np.int32(codes[i]) - 1))


@numba.njit("void(float32[::1], float32[::1], uint8[::1])", cache=True, nogil=True, fastmath={"reassoc"})
def onebit_encode(values: Floats, means: Floats, packed: Bytes) -> None:
    """Write which values of one tensor are negative, the mean of the others and the mean of those."""
    codes = np.empty(ROW, np.uint8)
    total = negative_total = 0.0
    negatives = 0
    for start in range(0, values.size, ROW):
        row = values[start : start + ROW]
        codes[row.size :] = 0
        for i in range(row.size):
            codes[i] = np.uint8(row[i] < 0)
            total += np.float64(max(row[i], np.float32(0)))
            negative_total += np.float64(min(row[i], np.float32(0)))
            negatives += row[i] < 0
        pack_row(codes, 1, packed[start // 8 : (start + ROW) // 8])
    if all_finite(values):
        means[0] = total / max(values.size - negatives, 1)
        means[1] = negative_total / max(negatives, 1)
    else:
        means[:] = np.nan


@numba.njit("void(uint8[::1], float32[::1], float32, float32[::1])", cache=True, nogil=True)
def onebit_add(packed: Bytes, means: Floats, scale: float, out: Floats) -> None:
    """Add what onebit_encode wrote."""
    codes = np.empty(ROW, np.uint8)
    for start in range(0, out.size, ROW):
        unpack_row(packed[start // 8 : (start + ROW) // 8], 1, codes)
        row = out[start : start + ROW]
        for i in range(row.size):
            row[i] += scale * (means[1] if codes[i] else means[0])


@numba.njit("void(float32[::1], uint64, uint8[::1], uint8[::1])", cache=True, nogil=True)
def natural_encode(values: Floats, key: np.uint64, exponents: Bytes, signs: Bytes) -> None:
    """Round every value to a power of two, up or down at random; write its exponent and its sign."""
    bits = values.view(np.uint32)
    codes = np.empty(ROW, np.uint8)
    for start in range(0, bits.size, ROW):
        row = bits[start : start + ROW]
        codes[row.size :] = 0
        for i in range(row.size):
            # the fraction is the probability of rounding up: adding 23 random bits carries that often, exactly
            carry = ((row[i] & np.uint32(0x7FFFFF)) + np.uint32(draw(key, start + i) >> np.uint64(41))) >> np.uint32(23)
            exponent = (row[i] >> np.uint32(23)) & np.uint32(0xFF)
            exponents[start + i] = exponent + (carry if exponent < 254 else np.uint32(0))
            codes[i] = row[i] >> np.uint32(31)
        pack_row(codes, 1, signs[start // 8 : (start + ROW) // 8])


@numba.njit("void(uint8[::1], uint8[::1], float32, float32[::1])", cache=True, nogil=True)
def natural_add(exponents: Bytes, signs: Bytes, scale: float, out: Floats) -> None:
    """Add what natural_encode wrote."""
    codes = np.empty(ROW, np.uint8)
    bits = np.empty(ROW, np.uint32)
    decoded = bits.view(np.float32)
    for start in range(0, out.size, ROW):
        unpack_row(signs[start // 8 : (start + ROW) // 8], 1, codes)
        row = out[start : start + ROW]
        for i in range(row.size):
            bits[i] = (np.uint32(codes[i]) << np.uint32(31)) | (np.uint32(exponents[start + i]) << np.uint32(23))
        for i in range(row.size):
            row[i] += scale * decoded[i]
