"""Images in memory: Fashion-MNIST from the distribution's package, CIFAR-10 and CIFAR-100 from a data folder.

`check_dataset` tells early and cheaply what is missing; `load_dataset` reads; `batches` orders the samples alike for every scheme.
"""

from workloads.datasets.dataset import Dataset, DatasetError
from workloads.datasets.registry import DATASETS, check_dataset, load_dataset

__all__ = ["DATASETS", "Dataset", "DatasetError", "check_dataset", "load_dataset"]
