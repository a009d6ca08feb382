"""What a dataset is: images kept as bytes, normalised batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class DatasetError(Exception):
    """A dataset that is missing or damaged, with the remedy."""


@dataclass(frozen=True)
class Dataset:
    """Images as uint8 [n, channels, height, width] (a quarter of the memory of floats) and their labels."""

    name: str
    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    mean: tuple[float, ...]  # per channel, of images scaled to 0..1
    std: tuple[float, ...]
    classes: int

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return int(self.train_images.shape[1])
