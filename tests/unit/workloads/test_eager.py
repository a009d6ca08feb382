"""Workers do without torch's compiler, train the same, and whoever wants it has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.workloads.preloaded import Preloaded, preloaded

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


@pytest.fixture(scope="module")
def torch_python() -> Iterator[Preloaded]:
    """Have torch without its compiler, and what else the compiler needs."""
    with preloaded(["torch", "sympy"]) as process:
        yield process


def run(python: Preloaded, *scripts: str) -> list[list[str]]:
    """Run scripts side by side; return the words each prints."""
    with python.forks(list(scripts)) as forks:
        for fork in forks:
            assert fork.wait(timeout_s=60) == 0, fork.complained
        return [fork.said.split() for fork in forks]


def test_training_is_the_same_without_it_and_never_asks_for_it(torch_python: Preloaded) -> None:
    (digest, modules), (stock_digest, stock_modules) = run(torch_python, TRAIN.format(first=STAND_IN), TRAIN.format(first=""))
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
def test_whoever_asks_for_more_has_the_real_one(torch_python: Preloaded, ask: str) -> None:
    assert run(torch_python, f"{STAND_IN}\n{ask}") == [["False"]]
