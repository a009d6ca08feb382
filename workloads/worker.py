"""Run one worker: python -m workloads.worker JOB.json."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from workloads.job import Job
from workloads.schemes import parse_scheme

if TYPE_CHECKING:
    from workloads.datasets import Dataset


def run_worker(job: Job, dataset: Dataset | None = None) -> int:
    """Run a job to its end; return the exit code. A dataset loaded before saves reading it."""
    try:
        parse_scheme(job.scheme)
        os.environ["OMP_NUM_THREADS"] = str(job.threads)
        os.nice(job.nice)
        _run(job, dataset)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _run(job: Job, dataset: Dataset | None) -> None:
    # torch comes after the environment it reads when it is imported
    import torch.distributed as dist

    from workloads.group import join_group
    from workloads.records import Stream
    from workloads.replay import replay
    from workloads.training import train

    stream = Stream(job.stream_dir, job.rank)
    stream.event("started", "worker started")
    join_group(job)
    stream.event("joined", "process group joined")
    if job.workload["kind"] == "train":
        train(job, stream, dataset)
    else:
        replay(job, stream)
    dist.barrier()  # nobody hangs up while another still waits for its last message
    dist.destroy_process_group()
    stream.close()


def main() -> int:
    """Run the job named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python -m workloads.worker JOB.json", file=sys.stderr)
        return 2
    try:
        job = Job.load(sys.argv[1])
    except (OSError, ValueError) as error:
        print(f"cannot read the job: {error}", file=sys.stderr)
        return 2
    return run_worker(job)


if __name__ == "__main__":
    sys.exit(main())
