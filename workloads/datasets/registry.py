"""Which datasets there are."""

from __future__ import annotations

import difflib

from workloads.datasets import cifar, fashion_mnist
from workloads.datasets.dataset import Dataset, DatasetError

DATASETS = ("fashion-mnist", "cifar10", "cifar100")


def check_dataset(name: str, data_dir: str | None = None) -> None:
    """Raise DatasetError, with the remedy, unless the dataset is there and whole."""
    _known(name)
    if name == "fashion-mnist":
        fashion_mnist.check(data_dir)
    else:
        cifar.check(name, data_dir)


def load_dataset(name: str, data_dir: str | None = None) -> Dataset:
    """Read a dataset into memory."""
    _known(name)
    return fashion_mnist.load(data_dir) if name == "fashion-mnist" else cifar.load(name, data_dir)


def _known(name: str) -> None:
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, 1, 0.0)[0]
        raise DatasetError(f"unknown dataset {name!r}: did you mean {near!r}?")
