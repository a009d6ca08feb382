"""What the quantizers share: compiled loops for the CPU, bit packing in torch for other devices, and the frame of a payload.

Signatures are explicit, so that compiling happens at import (cached on disk), never inside a measured step. Loops quantize
512 values into a row of one byte each, then pack the row: both halves vectorise, a loop that does both at once does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.codec import FLOAT32, HEADER_BYTES, Header, PayloadError, read_header
from workloads.compression.topk import aligned
from workloads.compression.topk_kernels import ABSOLUTE

ROW = 512  # values quantized at a time; also QSGD's bucket
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment
LARGEST = float(np.finfo(np.float32).max)
INFINITY = np.uint32(0x7F800000)  # its bits

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


# Random numbers: a hash of (key, index), so that any element's number can be had without those before it.


@numba.njit("uint64(uint64)", cache=True, nogil=True)
def mix(state: np.uint64) -> np.uint64:
    """Scramble 64 bits (splitmix64; Steele et al. 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@numba.njit("uint64(uint64, int64)", cache=True, nogil=True)
def draw(key: np.uint64, index: int) -> np.uint64:
    """Return the 64 random bits of an index."""
    return mix(key + np.uint64(index + 1) * GOLDEN)


@numba.njit("float64(uint64, int64)", cache=True, nogil=True)
def uniform(key: np.uint64, index: int) -> float:
    """Return an index's random number in [0, 1)."""
    return np.float64(np.int32(draw(key, index) >> np.uint64(33))) * 2.0**-31


class Keys:
    """A fresh key for every encode, the same ones again after reseeding."""

    def __init__(self, seed: int = 0) -> None:
        self._state = np.uint64(mix(np.uint64(seed % (1 << 64))))
        self._calls = 0

    def next(self) -> int:
        """Return the next key."""
        self._calls += 1
        return int(draw(self._state, self._calls))


def generator(key: int, device: torch.device) -> torch.Generator:
    """Return torch's random numbers for a key."""
    return torch.Generator(device).manual_seed(key)


# Packing codes of 1, 2, 4 or 8 bits into bytes, the first in the lowest bits.


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


# The frame of a payload: header and body, and the tensors inside a flat one.


def new_payload(header: Header, device: torch.device, *part_bytes: int) -> tuple[Tensor, list[Tensor]]:
    """Return a payload with its header written and its parts still to be filled."""
    payload = torch.empty(HEADER_BYTES + sum(part_bytes), dtype=torch.uint8, device=device)
    payload[:HEADER_BYTES] = torch.frombuffer(bytearray(header.pack()), dtype=torch.uint8)
    return payload, split(payload[HEADER_BYTES:], *part_bytes)


def open_payload(buffer: Tensor, codec_id: int, out: Tensor, dtype: int = FLOAT32) -> tuple[Header, Tensor]:
    """Return the header of a payload meant for `out`, and its body with words aligned on the device of `out`."""
    header = read_header(buffer, codec_id)
    if header.dtype != dtype:
        raise PayloadError(f"payload of codec {codec_id} with values of dtype {header.dtype}, not {dtype}")
    if header.n != out.numel():
        raise PayloadError(f"payload of {header.n} elements for a tensor of {out.numel()}")
    return header, aligned(buffer.to(out.device))[HEADER_BYTES:]


def open_dense(buffer: Tensor, codec_id: int, out: Tensor, dtype: int = FLOAT32) -> tuple[Header, Tensor]:
    """Open a payload that counts all its elements as sent."""
    header, body = open_payload(buffer, codec_id, out, dtype)
    if header.k != header.n:
        raise PayloadError(f"payload of codec {codec_id} claims to send {header.k} of {header.n} elements, not all")
    return header, body


def split(body: Tensor, *part_bytes: int) -> list[Tensor]:
    """Cut a body into its parts, which it must fill exactly."""
    if body.numel() != sum(part_bytes):
        raise PayloadError(f"a payload with a body of {sum(part_bytes)} bytes was expected, not {body.numel()}")
    return list(body.split(list(part_bytes)))


def tensor_sizes(n: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the tensors in a row of n elements, without empty ones."""
    if sizes and (min(sizes) < 0 or sum(sizes) != n):
        raise ValueError(f"the sizes of {len(sizes)} tensors sum to {sum(sizes)}, but there are {n} elements")
    return tuple(size for size in sizes or (n,) if size)


def read_sizes(body: Tensor, header: Header) -> list[int]:
    """Read the table of k int32 tensor sizes that a body begins with."""
    if body.numel() < 4 * header.k:
        raise PayloadError(f"a payload of {header.k} tensors ends within the table of their sizes")
    sizes: list[int] = body[: 4 * header.k].view(torch.int32).tolist()
    if min(sizes, default=1) < 1 or sum(sizes) != header.n:
        raise PayloadError(f"the tensor sizes in a payload sum to {sum(sizes)}, not to its {header.n} elements")
    return sizes


def segments(sizes: Sequence[int], bits: int) -> Iterator[tuple[slice, slice]]:
    """Yield where each tensor's elements lie, and where the bytes of its codes: each tensor begins a new byte."""
    element = byte = 0
    for size in sizes:
        yield slice(element, element + size), slice(byte, byte + packed_bytes(size, bits))
        element, byte = element + size, byte + packed_bytes(size, bits)


def code_bytes(sizes: Sequence[int], bits: int) -> int:
    """Return how many bytes the codes of tensors fill."""
    return sum(packed_bytes(size, bits) for size in sizes)


def add_values(out: Tensor, values: Tensor, scale: float) -> None:
    """Add `scale` times a row of values to a tensor of any float dtype and layout."""
    out.detach().add_(values.view(out.shape), alpha=scale)


def add_compiled(out: Tensor, kernel: Callable[[float, Floats], None], scale: float) -> None:
    """Let a compiled loop add to a tensor, by way of a row of float32 if it is none itself."""
    if out.dtype == torch.float32 and out.is_contiguous():
        kernel(scale, out.detach().view(-1).numpy())
    else:
        row = torch.zeros(out.numel())
        kernel(1.0, row.numpy())
        add_values(out, row, scale)


# The quantizers' loops. A scale that is NaN makes all it scales NaN, since the codes are zero then and 0 * NaN is NaN.


@numba.njit("uint32(float32[::1])", cache=True, nogil=True)
def largest_bits(values: Floats) -> np.uint32:
    """Return the bits of the largest magnitude; those of infinity and NaN are the largest of all."""
    bits = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, bits[i] & ABSOLUTE)
    return largest


@numba.njit("boolean(float32[::1])", cache=True, nogil=True)
def all_finite(values: Floats) -> bool:
    """Tell whether there is neither NaN nor infinity."""
    return bool(largest_bits(values) < INFINITY)


@numba.njit("float32(float32[::1])", cache=True, nogil=True)
def largest_magnitude(values: Floats) -> np.float32:
    """Return the largest magnitude; NaN if not all values are finite."""
    largest = np.full(1, largest_bits(values), np.uint32)
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
