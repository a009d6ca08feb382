"""What becomes of the part of a gradient that was not sent.

NaN and infinities are sent, so that every replica sees them, but never kept: a residual would carry them into all later steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

import torch
from torch import Tensor

from workloads.compression.codec import Codec


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
        if known != layout or not fits(residual, flat):
            # DDP rebuilds its buckets after the first iteration: the old residual belongs to other parameters
            residual = zeros_like(flat)
            self._slots[slot] = (layout, residual)
        return residual.add_(flat)

    def keep(self, slot: int, compensated: Tensor, payload: Tensor, codec: Codec) -> None:
        """Take what was sent out of the residual."""
        codec.add_decoded(payload, compensated, scale=-1.0)
        drop_not_finite(compensated)

    def clear(self, slot: int) -> None:
        """Forget the slot's residual."""
        self._slots.pop(slot, None)

    def reset(self) -> None:
        """Forget all residuals."""
        self._slots.clear()


def zeros_like(flat: Tensor) -> Tensor:
    """Return nothing kept yet of a gradient."""
    return torch.zeros(flat.shape, dtype=_kept_dtype(flat), device=flat.device)


def fits(residual: Tensor, flat: Tensor) -> bool:
    """Tell whether what was kept is of such a gradient."""
    return residual.shape == flat.shape and residual.dtype == _kept_dtype(flat) and residual.device == flat.device


def _kept_dtype(flat: Tensor) -> torch.dtype:
    # the small remainders of many half-precision steps would vanish in half precision
    return torch.promote_types(flat.dtype, torch.float32)


def drop_not_finite(tensor: Tensor) -> None:
    """Zero NaN and infinities, in place."""
    tensor.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
