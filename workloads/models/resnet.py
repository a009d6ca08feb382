"""Residual networks for small images (He et al. 2016, section 4.2): a 3x3 stem, no pooling before the blocks."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, projected by a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the residual to the shortcut."""
        residual = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(residual + self.shortcut(x))


class CifarResNet(nn.Module):
    """One stage per width, `blocks` blocks a stage, halving the image between stages."""

    def __init__(self, widths: tuple[int, ...], blocks: int, in_channels: int, num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(in_channels, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU()]
        inputs = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(BasicBlock(inputs, width, 2 if stage > 0 and block == 0 else 1))
                inputs = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of a batch."""
        logits: torch.Tensor = self.classifier(self.features(images).mean(dim=(2, 3)))
        return logits
