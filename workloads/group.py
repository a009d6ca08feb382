"""How the workers of a job find each other: the process group, and the notices that rank 0 puts up for all."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from workloads.job import Job
from workloads.stop import FileNotices, Notices, StoreNotices

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}  # payloads of schemes are in main memory in either case

LOOK_EVERY_S = 0.01


def join_group(job: Job) -> None:
    """Join the workers' process group over the job's interface."""
    if job.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = job.interface
    torch.set_num_threads(job.threads)
    timeout = timedelta(seconds=job.timeout_s * job.dilation)
    store = _store(job) if job.store_prefix else _own_store(job, timeout)
    dist.init_process_group(BACKENDS[job.device], store=store, rank=job.rank, world_size=job.world_size, timeout=timeout)


def notices_of(job: Job) -> Notices:
    """Return where rank 0 puts up its notices: a file, or the store where the workers share no folder."""
    return StoreNotices(_store(job)) if job.store_prefix else FileNotices(job.stream_dir)


def _own_store(job: Job, timeout: timedelta) -> dist.Store:
    """Open the store of workers that share a folder, on rank 0; the others wait for its sign there, as who comes too early waits longer."""
    sign = job.stream_dir / "store"
    if job.rank == 0:
        store = dist.TCPStore(job.master_addr, job.master_port, job.world_size, True, timeout, wait_for_workers=False)
        sign.touch()
        return store
    deadline_s = time.monotonic() + timeout.total_seconds()
    while not sign.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"rank 0 opened no store within {timeout.total_seconds():.0f} s")
        time.sleep(LOOK_EVERY_S)
    return dist.TCPStore(job.master_addr, job.master_port, job.world_size, False, timeout, wait_for_workers=False)


def _store(job: Job) -> dist.Store:
    """Connect to the store that is there already."""
    timeout = timedelta(seconds=job.timeout_s)
    return dist.PrefixStore(job.store_prefix, dist.TCPStore(job.master_addr, job.master_port, is_master=False, timeout=timeout))
