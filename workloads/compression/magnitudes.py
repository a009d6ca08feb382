"""Magnitudes by their bits: those of |x| order as |x| does, with infinities and NaN above all numbers."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

ABSOLUTE = np.uint32(0x7FFFFFFF)  # all bits of a float32 but the sign


@numba.njit("uint32(uint32[::1])", cache=True, nogil=True)
def largest_bits(bits: NDArray[np.uint32]) -> np.uint32:
    """Return the bits of the largest magnitude."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, np.uint32(bits[i] & ABSOLUTE))
    return largest
