"""Workers do without torch's compiler, train the same, and whoever wants it has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.unit.workloads.preloaded import Preloaded, preloaded

TRAIN = """
import sys
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
in_dynamo = [name for name in sys.modules if name.startswith("torch._dynamo.") and hasattr(sys.modules[name], "__file__")]
shapes = [name for name in vars(sys.modules["torch._meta_registrations"]) if name.startswith("meta_")]
print(training.digest(plain), len(in_dynamo), len([name for name in sys.modules if name.startswith("torch.export.")]), len(shapes))
"""


@pytest.fixture(scope="module")
def stock_python() -> Iterator[Preloaded]:
    """Have torch as it comes."""
    with preloaded(["torch"]) as process:
        yield process


@pytest.fixture(scope="module")
def eager_python() -> Iterator[Preloaded]:
    """Have torch as workers have it."""
    with preloaded(["workloads.nursery", "sympy"]) as process:  # and what the compiler needs
        yield process


def run(*started: tuple[Preloaded, str]) -> list[list[str]]:
    """Run scripts side by side; return the words each prints."""
    with ExitStack() as stack:
        forks = [fork for python, script in started for fork in stack.enter_context(python.forks([script]))]
        for fork in forks:
            assert fork.wait(timeout_s=60) == 0, fork.complained
        return [fork.said.split() for fork in forks]


def test_training_is_the_same_without_it_and_never_asks_for_it(stock_python: Preloaded, eager_python: Preloaded) -> None:
    (digest, *modules), (stock_digest, *stock_modules) = run((eager_python, TRAIN), (stock_python, TRAIN))
    assert digest == stock_digest
    assert modules == ["0", "0", "0"]
    assert all(int(count) > least for count, least in zip(stock_modules, (50, 0, 100), strict=True)), (
        "nothing to save: the stand-ins can go"
    )


@pytest.mark.parametrize(
    "ask",
    [
        "print(torch._dynamo.is_compiling())",
        "print(torch._dynamo.utils.counters is not None and False)",
        "import torch._dynamo.config; print(torch._dynamo.config.disable)",
        "from torch._dynamo import is_compiling; print(is_compiling())",
        "import inspect; inspect.getmodule(len); print(torch._dynamo.trace_rules.lookup is None)",
        "print(torch.export.export is None)",
        "import torch.export.graph_signature; print(torch.export.graph_signature is None)",
        "import torch._meta_registrations as shapes; shapes.register_meta\n"
        "with torch.device('meta'): print(torch.nn.Conv2d(3, 4, 3)(torch.empty(2, 3, 8, 8)).numel() == 0)",
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(1)).item() != 1)",
    ],
)
def test_whoever_asks_for_more_has_the_real_one(eager_python: Preloaded, ask: str) -> None:
    assert run((eager_python, f"import torch\n{ask}")) == [["False"]]
