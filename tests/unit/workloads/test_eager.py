"""Workers do without torch's compiler, train the same, and whoever wants it has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TRAIN = """
import sys
{first}
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from workloads import training
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
model = DistributedDataParallel(plain)
for make in (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p)):
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.ones(4, 8)).square().sum().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
print(training.digest(plain), len([name for name in sys.modules if name.startswith("torch._dynamo.")]))
"""
STAND_IN = "import torch\nfrom workloads import eager\neager.stand_in()"


def run(script: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_training_is_the_same_without_it_and_never_asks_for_it():
    digest, modules = run(TRAIN.format(first=STAND_IN))
    stock_digest, stock_modules = run(TRAIN.format(first=""))
    assert digest == stock_digest
    assert int(modules) == 0
    assert int(stock_modules) > 50  # else there is nothing to save, and the stand-in can go


@pytest.mark.parametrize(
    "ask",
    [
        "print(torch._dynamo.is_compiling())",
        "print(torch._dynamo.utils.counters is not None and False)",
        "import torch._dynamo.config; print(torch._dynamo.config.disable)",
        "from torch._dynamo import is_compiling; print(is_compiling())",
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(1)).item() != 1)",
    ],
)
def test_whoever_asks_for_more_has_the_real_one(ask):
    assert run(f"{STAND_IN}\n{ask}") == ["False"]
