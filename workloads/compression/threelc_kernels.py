"""Compiled loops of 3LC: quantise, pack five ternary values into a byte, shorten runs of zeros, and back.

Signatures are explicit, so that compiling happens at import (cached on disk), never inside a measured step.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from workloads.compression.magnitudes import largest_bits

LARGEST_FLOAT = np.finfo(np.float32).max
SMALLEST_FLOAT = np.finfo(np.float32).smallest_subnormal
RAW = -1  # in place of a body's length: the tensor travels as float32
FIVE_ZEROS = 121  # the byte of five zeros
FIRST_RUN = 243  # bytes from here on stand for runs of FIVE_ZEROS...
RUN_OFFSET = 241  # ...as many as the byte's value less this
LONGEST_RUN = 14
DIGITS = np.array([[byte // 3 ** (4 - part) % 3 - 1 for part in range(5)] for byte in range(FIRST_RUN)], np.int8)


@numba.njit("float32(float32, float32)", cache=True, nogil=True)
def scale_of(largest: np.float32, sparsity: np.float32) -> np.float32:
    """Return M = sparsity * largest, NaN if that is not finite to begin with."""
    if not np.isfinite(largest):
        return np.float32(np.nan)
    scale = min(np.float32(sparsity * largest), LARGEST_FLOAT)
    # among denormals M may round up to twice the largest, which then would quantise to 0 like everything else
    return largest if np.float32(2) * largest <= scale else scale


@numba.njit("float32(float32)", cache=True, nogil=True)
def half_of(scale: np.float32) -> np.float32:
    """Return the largest float32 h <= M/2; for |a| <= M, round_half_even(a/M) in float32 is then (a > h) - (a < -h).

    In float32 a/M is at most 0.5, and rounds on to 0, exactly if a/M <= 0.5 + 2^-25: that is the midpoint to the next float32,
    and of the two 0.5 is even. So the limit is a <= M/2 + M 2^-25, and no float32 lies between h and that limit: if M/2 is a
    float32, the next one is ulp(h) > h 2^-24 = M 2^-25 above it; if not, M is an odd number of the smallest denormals, below
    2^24 of them, and the next one is M/2 plus half a denormal, more than M 2^-25.
    """
    half = np.float32(scale * np.float32(0.5))
    return np.float32(half - SMALLEST_FLOAT) if half + half > scale else half


@numba.njit("void(float32[::1], float32, uint8[::1])", cache=True, nogil=True)
def pack(values: NDArray[np.float32], half: np.float32, out: NDArray[np.uint8]) -> None:
    """Quantise and write quartic bytes: byte j holds element j of five contiguous parts."""
    length = out.size
    # one view a part: with computed indices into one array the loop would not become vector instructions
    part0, part1, part2, part3, part4 = values, values[length:], values[2 * length :], values[3 * length :], values[4 * length :]
    full = part4.size
    for j in range(full):
        q0 = 1 * (part0[j] > half) - 1 * (part0[j] < -half)
        q1 = 1 * (part1[j] > half) - 1 * (part1[j] < -half)
        q2 = 1 * (part2[j] > half) - 1 * (part2[j] < -half)
        q3 = 1 * (part3[j] > half) - 1 * (part3[j] < -half)
        q4 = 1 * (part4[j] > half) - 1 * (part4[j] < -half)
        out[j] = FIVE_ZEROS + 81 * q0 + 27 * q1 + 9 * q2 + 3 * q3 + q4
    for j in range(full, length):  # at most four bytes with padding, digit 0, at the end of the last parts
        byte = 0
        for i in range(j, 5 * length, length):
            digit = 1 + (values[i] > half) - (values[i] < -half) if i < values.size else 0
            byte = 3 * byte + digit
        out[j] = byte


@numba.njit("int64(uint8[::1])", cache=True, nogil=True)
def shorten_runs(data: NDArray[np.uint8]) -> int:
    """Replace runs of FIVE_ZEROS, in place; return the new length."""
    run, written = 0, 0
    for i in range(data.size):
        byte = data[i]
        run = run + 1 if byte == FIVE_ZEROS else 0
        written += run <= 1  # from the second byte on a run is written over its own byte
        data[written - 1] = byte if run <= 1 else RUN_OFFSET + run
        run = 0 if run == LONGEST_RUN else run
    return written


@numba.njit("void(float32[::1], float32, int32[::1], int32[::1], float32[::1], float32[::1], uint8[::1])", cache=True, nogil=True)
def encode_tensors(
    values: NDArray[np.float32],
    sparsity: np.float32,
    counts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    scales: NDArray[np.float32],
    raw: NDArray[np.float32],
    bodies: NDArray[np.uint8],
) -> None:
    """Encode the tensors that lie in `values` one after the other, those marked RAW to `raw`, and fill in lengths and scales."""
    largest = np.empty(1, np.uint32)
    start, raws, used = 0, 0, 0
    for t in range(counts.size):
        tensor = values[start : start + counts[t]]
        start += counts[t]
        if lengths[t] == RAW:
            scales[t] = 0
            raw[raws : raws + tensor.size] = tensor
            raws += tensor.size
        else:
            largest[0] = largest_bits(tensor.view(np.uint32))
            scales[t] = scale_of(largest.view(np.float32)[0], sparsity)
            body = bodies[used : used + (tensor.size + 4) // 5]
            pack(tensor, half_of(scales[t]), body)
            lengths[t] = shorten_runs(body)
            used += lengths[t]


@numba.njit("int64(int32[::1], int32[::1], uint8[::1])", cache=True, nogil=True)
def first_damaged(counts: NDArray[np.int32], lengths: NDArray[np.int32], bodies: NDArray[np.uint8]) -> int:
    """Return the first tensor whose body does not expand to its elements, or -1."""
    start = 0
    for t in range(counts.size):
        if lengths[t] == RAW:
            continue
        expanded = 0
        for i in range(start, start + lengths[t]):
            expanded += bodies[i] - RUN_OFFSET if bodies[i] >= FIRST_RUN else 1
        if expanded != (counts[t] + 4) // 5:
            return t
        start += lengths[t]
    return -1


@numba.njit("void(uint8[::1], float32, float32[::1])", cache=True, nogil=True)
def add_body(body: NDArray[np.uint8], step: np.float32, out: NDArray[np.float32]) -> None:
    """Add `step` times the ternary values of a checked body."""
    table = np.empty((FIRST_RUN, 5), np.float32)
    for byte in range(FIRST_RUN):
        for part in range(5):
            digit = DIGITS[byte, part]
            table[byte, part] = step if digit > 0 else -step if digit < 0 else np.float32(0)
    length = (out.size + 4) // 5
    full = max(0, out.size - 4 * length)
    j = 0
    for i in range(body.size):
        byte = body[i]
        if byte >= FIRST_RUN:
            j += byte - RUN_OFFSET
            continue
        if j < full:
            out[j] += table[byte, 0]
            out[length + j] += table[byte, 1]
            out[2 * length + j] += table[byte, 2]
            out[3 * length + j] += table[byte, 3]
            out[4 * length + j] += table[byte, 4]
        else:
            for part in range(5):
                if part * length + j < out.size:
                    out[part * length + j] += table[byte, part]
        j += 1


@numba.njit("void(int32[::1], int32[::1], float32[::1], float32, float32[::1], uint8[::1], float32[::1])", cache=True, nogil=True)
def add_tensors(
    counts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    steps: NDArray[np.float32],
    scale: np.float32,
    raw: NDArray[np.float32],
    bodies: NDArray[np.uint8],
    out: NDArray[np.float32],
) -> None:
    """Add a checked payload; `steps` are the tensors' M times `scale`."""
    start, raws, used = 0, 0, 0
    for t in range(counts.size):
        tensor = out[start : start + counts[t]]
        start += counts[t]
        if lengths[t] == RAW:
            tensor += scale * raw[raws : raws + tensor.size]
            raws += tensor.size
        else:
            if np.isnan(steps[t]):
                tensor += steps[t]
            else:
                add_body(bodies[used : used + lengths[t]], steps[t], tensor)
            used += lengths[t]
