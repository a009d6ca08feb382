"""How the workers of a job find each other: the process group, and the notices that rank 0 puts up for all."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist

from workloads.job import Job
from workloads.stop import FileNotices, Notices, StoreNotices

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}  # payloads of schemes are in main memory in either case


def join_group(job: Job) -> None:
    """Join the workers' process group over the job's interface."""
    if job.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = job.interface
    torch.set_num_threads(job.threads)
    timeout = timedelta(seconds=job.timeout_s * job.dilation)
    backend = BACKENDS[job.device]
    if job.store_prefix:
        dist.init_process_group(backend, store=_store(job), rank=job.rank, world_size=job.world_size, timeout=timeout)
    else:
        where = f"tcp://{job.master_addr}:{job.master_port}"
        dist.init_process_group(backend, init_method=where, rank=job.rank, world_size=job.world_size, timeout=timeout)


def notices_of(job: Job) -> Notices:
    """Return where rank 0 puts up its notices: a file, or the store where the workers share no folder."""
    return StoreNotices(_store(job)) if job.store_prefix else FileNotices(job.stream_dir)


def _store(job: Job) -> dist.Store:
    """Connect to the store that is there already."""
    timeout = timedelta(seconds=job.timeout_s)
    return dist.PrefixStore(job.store_prefix, dist.TCPStore(job.master_addr, job.master_port, is_master=False, timeout=timeout))
