"""Compiled loops of the sparse codecs.

Signatures are explicit, so that compiling happens at import (cached on disk), never inside a measured step.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from workloads.compression.magnitudes import ABSOLUTE

BLOCK = 64  # elements tested at once; measured from 8 to 128 at ratios from 0.001 to 0.25


@numba.njit("int64(uint32[::1], uint32)", cache=True, nogil=True)
def count_at_least(bits: NDArray[np.uint32], bound: np.uint32) -> int:
    """Count the magnitudes that reach the bound."""
    count = 0
    for i in range(bits.size):
        count += (bits[i] & ABSOLUTE) >= bound
    return count


@numba.njit("int64(uint32[::1], uint32, int32[::1])", cache=True, nogil=True)
def find_at_least(bits: NDArray[np.uint32], bound: np.uint32, out: NDArray[np.int32]) -> int:
    """Write the indices of magnitudes that reach the bound until `out` is full; return how many were written."""
    n, room, found, i = bits.size, out.size, 0, 0
    while i + BLOCK <= n and found + BLOCK <= room:
        any_reaches = False
        for j in range(BLOCK):  # no way out of this loop, so that it becomes vector instructions
            any_reaches |= (bits[i + j] & ABSOLUTE) >= bound
        if any_reaches:
            for j in range(BLOCK):  # always write, sometimes move on: a branch would be mispredicted again and again
                out[found] = i + j
                found += (bits[i + j] & ABSOLUTE) >= bound
        i += BLOCK
    while i < n and found < room:
        out[found] = i
        found += (bits[i] & ABSOLUTE) >= bound
        i += 1
    return found


@numba.njit("void(uint32[::1], uint32, int64, int32[::1])", cache=True, nogil=True)
def find_above(bits: NDArray[np.uint32], threshold: np.uint32, ties: int, out: NDArray[np.int32]) -> None:
    """Fill `out` with the indices of magnitudes above the threshold and of the first `ties` equal to it; they must be as many."""
    found, i = 0, 0
    while found < out.size:
        magnitude = bits[i] & ABSOLUTE
        tie = (magnitude == threshold) & (ties > 0)
        out[found] = i
        found += (magnitude > threshold) | tie
        ties -= tie
        i += 1


@numba.njit("void(uint32[::1], int32[::1], uint32[::1])", cache=True, nogil=True)
def gather(words: NDArray[np.uint32], indices: NDArray[np.int32], out: NDArray[np.uint32]) -> None:
    """Copy the words at the indices."""
    for i in range(indices.size):
        out[i] = words[indices[i]]


@numba.njit("boolean(int32[::1], int64)", cache=True, nogil=True)
def are_ascending_below(indices: NDArray[np.int32], n: int) -> bool:
    """Tell whether indices rise strictly within 0..n-1."""
    previous = -1
    for i in range(indices.size):
        if indices[i] <= previous or indices[i] >= n:
            return False
        previous = indices[i]
    return True


@numba.njit("void(int32[::1], float32[::1], float32, float32[::1])", cache=True, nogil=True)
def scatter_add(indices: NDArray[np.int32], values: NDArray[np.float32], scale: float, out: NDArray[np.float32]) -> None:
    """Add scaled values at the indices."""
    for i in range(indices.size):
        out[indices[i]] += scale * values[i]
