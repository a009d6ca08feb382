"""Which data sets an experiment trains on, and what is wrong with this machine's copies."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.sweep import Run
from workloads.datasets import DatasetError, check_dataset

Wanted = tuple[str, str | None]  # name, and the folder if it was given


def wanted(runs: Iterable[Run]) -> list[Wanted]:
    """List the data sets that runs train on."""
    workloads = (run.experiment.workload.to_job() for run in runs)
    return sorted({(work["dataset"], work["data_dir"]) for work in workloads if work["kind"] == "train"}, key=str)


def problems(datasets: Iterable[Wanted]) -> list[str]:
    """Say of each data set that is not here, or not whole, how to get it."""
    found = []
    for name, data_dir in datasets:
        try:
            check_dataset(name, data_dir)
        except DatasetError as error:
            found.append(str(error))
    return found
