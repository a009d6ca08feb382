"""The trainable networks, small enough for a laptop's cores, and the sizes of larger ones for replay.

`build_model(name, in_channels, num_classes)` makes one; `sizes.layer_sizes(name)` lists a gradient's tensors without making it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

TRAINABLE = ("small_cnn", "resnet8", "resnet20", "resnet18")

__all__ = ["TRAINABLE", "build_model"]


def build_model(name: str, in_channels: int, num_classes: int) -> nn.Module:
    """Build a trainable network; torch is imported only here, so that listing names stays cheap."""
    from workloads.models.cnn import SmallCNN
    from workloads.models.resnet import CifarResNet

    if name == "small_cnn":
        return SmallCNN(in_channels, num_classes)
    if name in ("resnet8", "resnet20"):
        return CifarResNet((16, 32, 64), {"resnet8": 1, "resnet20": 3}[name], in_channels, num_classes)
    if name == "resnet18":
        return CifarResNet((64, 128, 256, 512), 2, in_channels, num_classes)
    raise ValueError(f"unknown model {name!r}: choose one of {', '.join(TRAINABLE)}")
