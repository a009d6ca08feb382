"""Hot loops, compiled by numba: torch.topk is five times slower on a CPU than a radix select.

Signatures are explicit, so that compiling happens at import (cached on disk), never inside a measured step.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

ABSOLUTE = np.uint32(0x7FFFFFFF)  # all but the sign: the bits of |x| order as |x| does, infinities and NaN above all


@numba.njit("void(uint32[::1], int64, int32[::1])", cache=True, nogil=True)
def select_largest(bits: NDArray[np.uint32], k: int, out: NDArray[np.int32]) -> None:
    """Write the ascending indices of the k largest magnitudes; of equal ones the lowest indices win."""
    # 1. histogram of the upper 15 bits of |x|; 2. of the lower 16 within the bin of the k-th largest; 3. collect.
    upper = np.zeros(1 << 15, np.int64)
    for i in range(bits.size):
        upper[(bits[i] & ABSOLUTE) >> np.uint32(16)] += 1
    above = 0
    high = (1 << 15) - 1
    while above + upper[high] < k:
        above += upper[high]
        high -= 1
    lower = np.zeros(1 << 16, np.int64)
    for i in range(bits.size):
        magnitude = bits[i] & ABSOLUTE
        if magnitude >> np.uint32(16) == high:
            lower[magnitude & np.uint32(0xFFFF)] += 1
    low = (1 << 16) - 1
    while above + lower[low] < k:
        above += lower[low]
        low -= 1
    threshold = np.uint32((high << 16) | low)
    ties = k - above
    found = 0
    for i in range(bits.size):
        magnitude = bits[i] & ABSOLUTE
        if magnitude > threshold:
            out[found] = i
            found += 1
        elif magnitude == threshold and ties > 0:
            out[found] = i
            found += 1
            ties -= 1


@numba.njit("void(float32[::1], int32[::1], float32[::1])", cache=True, nogil=True)
def gather(values: NDArray[np.float32], indices: NDArray[np.int32], out: NDArray[np.float32]) -> None:
    """Copy the values at the indices."""
    for i in range(indices.size):
        out[i] = values[indices[i]]


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
