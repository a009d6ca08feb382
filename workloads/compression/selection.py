"""Find the largest magnitudes of a tensor: exactly k of them, or all that reach a threshold guessed from a sample.

Compiled loops serve a CPU, torch operations any other device; both find the same indices. Magnitudes are compared as the bits of
|x|, so that infinities and NaN rank above every number.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.magnitudes import ABSOLUTE
from workloads.compression.topk_kernels import find_above, find_at_least, gather

SAMPLE = 1 << 15  # elements looked at to narrow an exact selection
CHUNK = 1 << 22  # elements a torch operation takes at once, so that its temporaries stay small


def float32_row(flat: Tensor) -> Tensor:
    """Return a tensor's values as one contiguous row of float32, without a copy where they are one."""
    return flat.detach().to(torch.float32).contiguous().view(-1)


def bits_of(row: Tensor) -> NDArray[np.uint32]:
    """Return a view of the bits of a row on the CPU."""
    bits: NDArray[np.uint32] = row.numpy().view(np.uint32)
    return bits


def sample_positions(n: int, count: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Draw one position from each of `count` equal stretches of n: every layer is seen in proportion to its size."""
    positions = (np.arange(count) + generator.random(count)) * (n / count)
    return np.minimum(positions, n - 1).astype(np.int32)


def select_largest(bits: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    """Fill `out` with the ascending indices of the largest magnitudes; of equal ones the lowest indices win.

    1. A sample gives a bound that very likely lies below the k-th largest; one pass collects what reaches it.
    2. The exact selection runs among those candidates; should they be too few or too many, among all elements.
    """
    candidates = _candidates(bits, out.size)
    if candidates is None:
        _select(bits, out)
        return
    magnitudes = np.empty(candidates.size, np.uint32)
    gather(bits, candidates, magnitudes)
    _select(magnitudes, out)
    gather(candidates.view(np.uint32), out, out.view(np.uint32))  # in place: from places among the candidates to their indices


def _candidates(bits: NDArray[np.uint32], k: int) -> NDArray[np.int32] | None:
    """Return the indices of at least k elements that hold the k largest, or None where that does not pay or did not work."""
    n = bits.size
    if n < 8 * SAMPLE or k > n // 4:
        return None
    expected = SAMPLE * k / n
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)  # four standard deviations: one encoding in 30,000 starts over
    sample = np.empty(SAMPLE, np.uint32)
    gather(bits, sample_positions(n, SAMPLE, np.random.default_rng(0)), sample)
    sample &= ABSOLUTE
    sample.partition(SAMPLE - rank)
    indices = np.empty(int(1.5 * n * rank / SAMPLE), np.int32)  # full only if very many elements equal the bound
    found = find_at_least(bits, sample[SAMPLE - rank], indices)
    return indices[:found] if k <= found < indices.size else None


def _select(bits: NDArray[np.uint32], out: NDArray[np.int32]) -> None:
    """Fill `out` as select_largest does, looking at every element."""
    threshold, ties = _threshold(bits, out.size)
    find_above(bits, threshold, ties, out)


def _threshold(bits: NDArray[np.uint32], k: int) -> tuple[np.uint32, int]:
    """Return the k-th largest magnitude, and how many of the k are equal to it."""
    first = bits.size - k
    magnitudes = bits & ABSOLUTE
    magnitudes.partition(first)  # vector instructions: three times faster than a radix select among a million candidates
    return magnitudes[first], k - int(np.count_nonzero(magnitudes[first:] > magnitudes[first]))


def select_largest_torch(row: Tensor, out: Tensor) -> None:
    """Fill `out` as select_largest does, on any device."""
    threshold = 0
    for bit in reversed(range(31)):  # the largest threshold that k elements reach, found bit by bit
        if count_at_least_torch(row, threshold | 1 << bit) >= out.numel():
            threshold |= 1 << bit
    ties = out.numel() - count_at_least_torch(row, threshold + 1)
    found = 0
    for start in range(0, row.numel(), CHUNK):
        magnitudes = _magnitudes(row[start : start + CHUNK])
        tie = magnitudes == threshold
        indices = ((magnitudes > threshold) | (tie & (tie.cumsum(0) <= ties))).nonzero().view(-1)
        ties -= min(ties, int(tie.count_nonzero()))
        out[found : found + indices.numel()] = indices + start
        found += indices.numel()


def find_at_least_torch(row: Tensor, bound: int, out: Tensor) -> None:
    """Fill `out` with the ascending indices of all magnitudes whose bits reach the bound, on any device; they must be as many."""
    found = 0
    for start in range(0, row.numel(), CHUNK):
        indices = (_magnitudes(row[start : start + CHUNK]) >= bound).nonzero().view(-1)
        out[found : found + indices.numel()] = indices + start
        found += indices.numel()


def count_at_least_torch(row: Tensor, bound: int) -> int:
    """Count the magnitudes whose bits reach the bound, on any device."""
    return sum(int((_magnitudes(row[start : start + CHUNK]) >= bound).count_nonzero()) for start in range(0, row.numel(), CHUNK))


def _magnitudes(row: Tensor) -> Tensor:
    return row.view(torch.int32) & int(ABSOLUTE)
