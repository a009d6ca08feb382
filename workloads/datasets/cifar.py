"""CIFAR-10 and CIFAR-100 from a folder the user has: the binary or the python version, as published."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.datasets.dataset import Dataset, DatasetError

PIXELS = 3 * 32 * 32
SITE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class Layout:
    """How one version of one dataset is stored."""

    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_bytes: int  # binary: label bytes before each image (the last one counts); 0 means python batches
    label_key: bytes  # python: the key of the labels


LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-bin", tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",), 1, b""),
        Layout("cifar-10-batches-py", tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",), 0, b"labels"),
    ),
    "cifar100": (
        Layout("cifar-100-binary", ("train.bin",), ("test.bin",), 2, b""),
        Layout("cifar-100-python", ("train",), ("test",), 0, b"fine_labels"),
    ),
}
STATISTICS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Unpickler(pickle.Unpickler):
    """Unpickle arrays, bytes, numbers, lists and dictionaries, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Permit only what the published batches hold."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"the batch asks for {module}.{name}")
        return super().find_class(module, name)


def find(name: str, data_dir: str | None) -> tuple[Path, Layout]:
    """Find which version of the dataset a folder holds."""
    if data_dir is None:
        raise DatasetError(f"{name} needs a data folder: download it from {SITE} and set the workload's data_dir")
    for layout in LAYOUTS[name]:
        for folder in (Path(data_dir), Path(data_dir) / layout.folder):
            if all((folder / part).exists() for part in (*layout.train, *layout.test)):
                return folder, layout
    raise DatasetError(f"{data_dir} holds no whole {name}: unpack the archive from {SITE} there")


def check(name: str, data_dir: str | None) -> None:
    """Verify presence and size without reading the images."""
    folder, layout = find(name, data_dir)
    for parts, images in ((layout.train, 50000), (layout.test, 10000)):
        size = sum((folder / part).stat().st_size for part in parts)
        record = layout.label_bytes + PIXELS
        if size != images * record if layout.label_bytes else size < images * record:
            raise DatasetError(f"{folder} is truncated ({size} bytes in {', '.join(parts)}): download it again from {SITE}")


def load(name: str, data_dir: str | None) -> Dataset:
    """Read all batches."""
    folder, layout = find(name, data_dir)
    train_images, train_labels = _read_all(folder, layout, layout.train, 50000)
    test_images, test_labels = _read_all(folder, layout, layout.test, 10000)
    mean, std = STATISTICS[name]
    return Dataset(name, train_images, train_labels, test_images, test_labels, mean, std, 10 if name == "cifar10" else 100)


def _read_all(folder: Path, layout: Layout, parts: tuple[str, ...], images: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    read = [_read(folder / part, layout) for part in parts]
    pixels, labels = np.concatenate([p for p, _ in read]), np.concatenate([n for _, n in read])
    if len(labels) != images or len(pixels) != images:
        raise DatasetError(f"{folder} holds {len(labels)} of {images} images: download it again from {SITE}")
    return pixels, labels


def _read(path: Path, layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        if layout.label_bytes:
            rows = np.fromfile(path, np.uint8).reshape(-1, layout.label_bytes + PIXELS)
            pixels, labels = rows[:, layout.label_bytes :], rows[:, layout.label_bytes - 1]
        else:
            batch = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
            pixels, labels = np.asarray(batch[b"data"], np.uint8), np.asarray(batch[layout.label_key])
        return np.ascontiguousarray(pixels).reshape(-1, 3, 32, 32), labels.astype(np.int64)
    except (ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise DatasetError(f"{path} is damaged ({error}): download it again from {SITE}") from error
