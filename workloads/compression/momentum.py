"""A memory of velocities in place of gradients."""

from __future__ import annotations

from collections.abc import Hashable

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory, drop_not_finite, fits, zeros_like

Floats = NDArray[np.float32]


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
        if known != layout or not fits(residual, flat):
            velocity, residual = zeros_like(flat), zeros_like(flat)
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
            drop_not_finite(velocity)
            drop_not_finite(compensated.sub_(decoded))

    def clear(self, slot: int) -> None:
        """Forget the slot's residual and its velocity, as all of it was sent."""
        self._slots.pop(slot, None)

    def reset(self) -> None:
        """Forget all residuals and velocities."""
        self._slots.clear()


@numba.njit("void(float32[::1], float32[::1], float32[::1])", cache=True, nogil=True)
def take_out(decoded: Floats, residual: Floats, velocity: Floats) -> None:
    """Subtract what was sent, stop the velocities of what was sent, drop NaN and infinities: one pass instead of five."""
    for i in range(decoded.size):
        rest = residual[i] - decoded[i]
        residual[i] = rest if abs(rest) < np.inf else np.float32(0)
        velocity[i] = velocity[i] if decoded[i] == 0 and abs(velocity[i]) < np.inf else np.float32(0)
