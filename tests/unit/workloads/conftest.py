"""A group of one worker over loopback, for what needs a process group but no peers; and processes for what needs them."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from groups import GROUPS
from torch.nn.parallel import DistributedDataParallel

from tests.unit.workloads.preloaded import Preloaded, preloaded


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be the only worker of a group."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def model(alone: None) -> DistributedDataParallel:
    """Make a small DDP model of that group."""
    torch.manual_seed(1)
    return DistributedDataParallel(torch.nn.Linear(20, 30))


@pytest.fixture(scope="session")
def python() -> Iterator[Preloaded]:
    """Start groups without importing torch in every process."""
    with preloaded(GROUPS) as process:
        yield process
