"""The sizes of a model's gradient tensors in forward order, from the architecture alone.

Replay sends gradients of these sizes. Names that are also trainable but have a well-known large form (resnet18) mean the large form here.
"""

from __future__ import annotations

from workloads.models import TRAINABLE, build_model

VGG16 = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)


def layer_sizes(name: str) -> list[int]:
    """List the elements of every parameter tensor of a model, in forward order."""
    if name == "resnet18":
        return _resnet((2, 2, 2, 2), bottleneck=False, classes=100)
    if name == "resnet50":
        return _resnet((3, 4, 6, 3), bottleneck=True, classes=1000)
    if name == "resnet110":
        return _cifar_resnet(18, classes=10)
    if name == "vgg16":
        return _vgg16(classes=100)
    if name == "gpt2-small":
        return _gpt2(layers=12, width=768, vocabulary=50257, context=1024)
    if name in TRAINABLE:
        import torch

        with torch.device("meta"):
            return [p.numel() for p in build_model(name, in_channels=3, num_classes=10).parameters()]
    raise ValueError(f"unknown gradient size {name!r}: choose one of {', '.join(replayable())}")


def replayable() -> tuple[str, ...]:
    """List the names `layer_sizes` knows."""
    return tuple(dict.fromkeys(("resnet18", "resnet50", "resnet110", "vgg16", "gpt2-small", *TRAINABLE)))


def _convolution(inputs: int, outputs: int, kernel: int) -> list[int]:
    """A convolution without bias and its batch normalisation's scale and shift."""
    return [inputs * outputs * kernel * kernel, outputs, outputs]


def _resnet(blocks: tuple[int, ...], bottleneck: bool, classes: int) -> list[int]:
    sizes = _convolution(3, 64, 7)
    inputs, expansion = 64, 4 if bottleneck else 1
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            outputs = width * expansion
            if bottleneck:
                sizes += _convolution(inputs, width, 1) + _convolution(width, width, 3) + _convolution(width, outputs, 1)
            else:
                sizes += _convolution(inputs, width, 3) + _convolution(width, width, 3)
            if block == 0 and (stage > 0 or inputs != outputs):
                sizes += _convolution(inputs, outputs, 1)
            inputs = outputs
    return [*sizes, inputs * classes, classes]


def _cifar_resnet(blocks: int, classes: int) -> list[int]:
    """He et al.'s network for small images: three stages, shortcuts without parameters."""
    sizes, inputs = _convolution(3, 16, 3), 16
    for outputs in (16, 32, 64):
        for _ in range(blocks):
            sizes += _convolution(inputs, outputs, 3) + _convolution(outputs, outputs, 3)
            inputs = outputs
    return [*sizes, inputs * classes, classes]


def _vgg16(classes: int) -> list[int]:
    sizes, inputs = [], 3
    for outputs in VGG16:
        sizes += [inputs * outputs * 9, outputs]
        inputs = outputs
    for inputs, outputs in ((512 * 7 * 7, 4096), (4096, 4096), (4096, classes)):
        sizes += [inputs * outputs, outputs]
    return sizes


def _gpt2(layers: int, width: int, vocabulary: int, context: int) -> list[int]:
    sizes = [vocabulary * width, context * width]  # the output layer shares the token embedding
    norm = [width, width]
    for _ in range(layers):
        sizes += [*norm, 3 * width * width, 3 * width, width * width, width]
        sizes += [*norm, 4 * width * width, 4 * width, 4 * width * width, width]
    return [*sizes, *norm]
