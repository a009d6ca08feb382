"""What becomes of the part of a gradient that was not sent.

NaN and infinities are sent, so that every replica sees them, but never kept: a residual would carry them into all later steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.codec import Codec

Floats = NDArray[np.float32]


class Memory(ABC):
    """Compensate a gradient before encoding, keep the rest after it; one slot a bucket."""

    @abstractmethod
    def compensate(self, slot: int, layout: Hashable, flat: Tensor) -> Tensor:
        """Return what to encode; `layout` identifies the parameters in the slot, a change of which empties it."""

    @abstractmethod
    def keep(self, slot: int, compensated: Tensor, payload: Tensor, codec: Codec) -> None:
        """Remember the difference between what was to be sent and what the payload says."""

    @abstractmethod
    def clear(self, slot: int) -> None:
        """Empty a slot all of which was delivered exactly; what compensate returned stays as it is."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything."""


class NoMemory(Memory):
    """Drop what is not sent."""

    def compensate(self, slot: int, layout: Hashable, flat: Tensor) -> Tensor:
        """Return the gradient as it is."""
        return flat

    def keep(self, slot: int, compensated: Tensor, payload: Tensor, codec: Codec) -> None:
        """Keep nothing."""

    def clear(self, slot: int) -> None:
        """Do nothing."""

    def reset(self) -> None:
        """Do nothing."""


class Residual(Memory):
    """Error feedback (Karimireddy et al. 2019): add what was left out to the next gradient."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[Hashable, Tensor]] = {}

    def compensate(self, slot: int, layout: Hashable, flat: Tensor) -> Tensor:
        """Add the gradient to the slot's residual, in place, and return it."""
        known, residual = self._slots.get(slot, (None, flat))
        if known != layout or not _fits(residual, flat):
            # DDP rebuilds its buckets after the first iteration: the old residual belongs to other parameters
            residual = _zeros(flat)
            self._slots[slot] = (layout, residual)
        return residual.add_(flat)

    def keep(self, slot: int, compensated: Tensor, payload: Tensor, codec: Codec) -> None:
        """Take what was sent out of the residual."""
        codec.add_decoded(payload, compensated, scale=-1.0)
        _drop_not_finite(compensated)

    def clear(self, slot: int) -> None:
        """Forget the slot's residual."""
        self._slots.pop(slot, None)

    def reset(self) -> None:
        """Forget all residuals."""
        self._slots.clear()


class MomentumCorrection(Memory):
    """Deep gradient compression (Lin et al. 2018): keep velocities back rather than gradients; the optimizer then has no momentum.

    1. velocity = momentum * velocity + gradient; 2. residual += velocity; 3. the residual is encoded and what was sent taken out
    of it; 4. the velocity of a value that was sent is zeroed (momentum factor masking), lest it goes on in a stale direction.
    """

    def __init__(self, momentum: float = 0.9) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum {momentum} must be at least 0 and below 1")
        self.momentum = momentum
        self._slots: dict[int, tuple[Hashable, Tensor, Tensor]] = {}

    def compensate(self, slot: int, layout: Hashable, flat: Tensor) -> Tensor:
        """Add the gradient to the slot's velocity and that to its residual, in place, and return the residual."""
        known, velocity, residual = self._slots.get(slot, (None, flat, flat))
        if known != layout or not _fits(residual, flat):
            velocity, residual = _zeros(flat), _zeros(flat)
            self._slots[slot] = (layout, velocity, residual)
        residual.add_(velocity.mul_(self.momentum).add_(flat))
        return residual

    def keep(self, slot: int, compensated: Tensor, payload: Tensor, codec: Codec) -> None:
        """Take what was sent out of the residual and stop its velocity."""
        _, velocity, _ = self._slots[slot]
        decoded = codec.decode(payload).view(compensated.shape)
        if compensated.is_cpu and compensated.dtype == torch.float32:
            take_out(decoded.view(-1).numpy(), compensated.view(-1).numpy(), velocity.view(-1).numpy())
        else:
            velocity.masked_fill_(decoded != 0, 0.0)
            _drop_not_finite(velocity)
            _drop_not_finite(compensated.sub_(decoded))

    def clear(self, slot: int) -> None:
        """Forget the slot's residual and its velocity, as all of it was sent."""
        self._slots.pop(slot, None)

    def reset(self) -> None:
        """Forget all residuals and velocities."""
        self._slots.clear()


def _zeros(flat: Tensor) -> Tensor:
    return torch.zeros(flat.shape, dtype=_kept_dtype(flat), device=flat.device)


def _fits(residual: Tensor, flat: Tensor) -> bool:
    return residual.shape == flat.shape and residual.dtype == _kept_dtype(flat) and residual.device == flat.device


def _kept_dtype(flat: Tensor) -> torch.dtype:
    # the small remainders of many half-precision steps would vanish in half precision
    return torch.promote_types(flat.dtype, torch.float32)


def _drop_not_finite(tensor: Tensor) -> None:
    tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


@numba.njit("void(float32[::1], float32[::1], float32[::1])", cache=True, nogil=True)
def take_out(decoded: Floats, residual: Floats, velocity: Floats) -> None:
    """Subtract what was sent, stop the velocities of what was sent, drop NaN and infinities: one pass instead of five."""
    for i in range(decoded.size):
        rest = residual[i] - decoded[i]
        residual[i] = rest if abs(rest) < np.inf else np.float32(0)
        velocity[i] = velocity[i] if decoded[i] == 0 and abs(velocity[i]) < np.inf else np.float32(0)
