"""Fashion-MNIST as Debian's package dataset-fashion-mnist installs it: four gzipped idx files."""

from __future__ import annotations

import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.datasets.dataset import Dataset, DatasetError

PACKAGE = "dataset-fashion-mnist"
FOLDER = Path("/usr/share/datasets/fashion-mnist")
REMEDY = f"install it with: apt-get install {PACKAGE}"
SHAPES = {
    "train-images-idx3-ubyte.gz": (60000, 28, 28),
    "train-labels-idx1-ubyte.gz": (60000,),
    "t10k-images-idx3-ubyte.gz": (10000, 28, 28),
    "t10k-labels-idx1-ubyte.gz": (10000,),
}
UNSIGNED_BYTE = 0x08  # the idx format's type code


def find_folder(data_dir: str | None) -> Path:
    """Find the folder of the four files: the given one, the usual one, or where dpkg says."""
    if data_dir is not None:
        for folder in (Path(data_dir), Path(data_dir) / "fashion-mnist"):
            if (folder / next(iter(SHAPES))).exists():
                return folder
        raise DatasetError(f"no Fashion-MNIST idx files in {data_dir}: give another data folder, or none and {REMEDY}")
    if FOLDER.exists():
        return FOLDER
    try:
        listing = subprocess.run(["dpkg", "-L", PACKAGE], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise DatasetError(f"Fashion-MNIST is not on this machine: {REMEDY}") from error
    for line in listing.splitlines():
        if line.endswith("train-images-idx3-ubyte.gz"):
            return Path(line).parent
    raise DatasetError(f"the package {PACKAGE} holds no training images: re{REMEDY}")


def check(data_dir: str | None) -> None:
    """Decompress every file and compare its header and size; a third of a second."""
    folder = find_folder(data_dir)
    for name in SHAPES:
        _read(folder / name)


def load(data_dir: str | None) -> Dataset:
    """Read the four files."""
    folder = find_folder(data_dir)
    train_images, train_labels, test_images, test_labels = (_read(folder / name) for name in SHAPES)
    return Dataset(
        "fashion-mnist",
        train_images[:, None],
        train_labels.astype(np.int64),
        test_images[:, None],
        test_labels.astype(np.int64),
        mean=(0.2860,),
        std=(0.3530,),
        classes=10,
    )


def _read(path: Path) -> NDArray[np.uint8]:
    shape = SHAPES[path.name]
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing: {REMEDY}") from error
    except zlib.error as error:
        raise DatasetError(f"{path} is damaged ({error}): re{REMEDY}") from error
    header = struct.pack(f">HBB{len(shape)}I", 0, UNSIGNED_BYTE, len(shape), *shape)
    if not stream.eof or not raw.startswith(header) or len(raw) != len(header) + int(np.prod(shape)):
        raise DatasetError(f"{path} is truncated or not Fashion-MNIST: re{REMEDY}")
    return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape)
