"""Random numbers of the stochastic codecs: a hash of (key, index), so that any element's number can be had without those before it."""

from __future__ import annotations

import numba
import numpy as np
import torch

from workloads.compression.codec import Codec

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment


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


class StochasticCodec(Codec):
    """A codec that draws random numbers, a fresh key for every encode."""

    def __init__(self, *, force_torch: bool = False) -> None:
        self._keys, self._force_torch = Keys(), force_torch

    def reseed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        self._keys = Keys(seed)
