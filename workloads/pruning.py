"""Prune a model once: mask the smallest weights of every convolution and linear layer, for good (NetSenseML's pruning).

The masks come from the weights that all replicas share, so they agree. The weights are zeroed, and their gradients from then on,
before anything is compressed: a masked weight takes no place among the elements that are sent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import Module

_PRUNED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Pruning:
    """The masks of a pruned model."""

    def __init__(self, model: Module, fraction: float) -> None:
        """Mask the smallest `fraction` of each layer's weights."""
        self._masks: dict[int, Tensor] = {}
        with torch.no_grad():
            for layer in model.modules():
                if isinstance(layer, _PRUNED):
                    weight = layer.weight
                    masked = int(fraction * weight.numel())
                    mask = torch.ones(weight.numel(), dtype=weight.dtype, device=weight.device)
                    mask[weight.detach().abs().reshape(-1).argsort(stable=True)[:masked]] = 0
                    self._masks[id(weight)] = mask.view_as(weight)
                    weight.mul_(self._masks[id(weight)])

    def apply(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Zero the gradients of masked weights."""
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if (mask := self._masks.get(id(parameter))) is not None:
                gradient.mul_(mask)
