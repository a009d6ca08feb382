"""Exchanges without a network: the choice of the cheaper way, the server's arithmetic, pruning."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from workloads.compression.memory import NoMemory, Residual
from workloads.compression.threelc import ThreeLC
from workloads.compression.topk import TopK
from workloads.exchange.auto import Auto
from workloads.exchange.exchange import Bucket, Exchange
from workloads.exchange.messages import pack_length, read_length
from workloads.exchange.powersgd import PowerSgd
from workloads.exchange.server import ParameterServer
from workloads.hooks import attach


def bucket(flat: torch.Tensor) -> Bucket:
    return Bucket(0, "layout", (flat.numel(),), flat)


def run(exchange: Exchange, flat: torch.Tensor, ratio: float = 1.0) -> torch.Tensor:
    transfer = exchange.transfer(bucket(flat), ratio)
    transfer.encode()
    transfer.start()
    transfer.wait()
    transfer.decode()
    return flat


@pytest.mark.parametrize(("half_below", "pair_bytes"), [(0.0, 8), (1.0, 6)])
@pytest.mark.parametrize("workers", [2, 4, 8])
def test_sparse_goes_dense_above_the_break_even_ratio(monkeypatch, workers, half_below, pair_bytes):
    exchange = Auto(TopK(half_below=half_below), NoMemory())
    monkeypatch.setattr(Exchange, "world_size", workers)
    large = bucket(torch.zeros(1_000_000))
    break_even = min(1.0, 8 / (workers * pair_bytes))
    assert exchange.is_sparse_cheaper(large, 0.97 * break_even)
    assert break_even == 1.0 or not exchange.is_sparse_cheaper(large, 1.03 * break_even)


def test_going_dense_delivers_what_the_residual_held(alone):
    exchange = Auto(TopK(), Residual())
    exchange.bind(None, 0)
    gradient = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    exchange.is_sparse_cheaper = lambda given, ratio: ratio < 0.5  # type: ignore[method-assign]
    sent = run(exchange, gradient.clone(), 0.1)
    rest = run(exchange, gradient.clone(), 1.0)
    assert torch.allclose(sent + rest, 2 * gradient, atol=1e-6)
    assert torch.equal(run(exchange, gradient.clone(), 1.0), gradient)  # nothing is owed any more


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_workers_applied_and_the_servers_error_make_the_global_model(alone, momentum):
    """With plain SGD at rate 1: worker's model + server's error = the model a server without compression would have."""
    server = ParameterServer(ThreeLC(), Residual(), Residual(), momentum)
    server.bind(None, 0)
    generator = torch.Generator().manual_seed(2)
    worker, true, velocity = torch.zeros(2000), torch.zeros(2000), torch.zeros(2000)
    codec, memory = ThreeLC(), Residual()
    for _ in range(6):
        gradient = torch.randn(2000, generator=generator)
        compensated = memory.compensate(0, "layout", gradient)
        pushed = codec.encode(compensated, 1.0, (2000,))
        memory.keep(0, compensated, pushed, codec)
        velocity = momentum * velocity + codec.decode(pushed)
        true -= velocity
        worker -= run(server, gradient.clone())
    owed = server.pull_memory.compensate(0, "layout", torch.zeros(2000))
    assert momentum == 0 or owed.abs().max() > 0  # one worker and no momentum: the mean is ternary already
    assert torch.allclose(worker - owed, true, atol=1e-4)


def test_powersgd_counts_what_its_hook_reduces(alone):
    exchange = PowerSgd(rank=2)
    exchange.bind(None, 0)
    matrix, vector, small = torch.zeros(100, 50), torch.zeros(70), torch.zeros(3, 3)
    assert exchange.elements([matrix, vector, small]) == (70 + 9, 200, 100)


@pytest.mark.parametrize("length", [-1, 11])
def test_a_peer_that_announces_nonsense_is_not_believed(length):
    assert read_length(pack_length(10), 10) == 10
    with pytest.raises(ValueError, match=f"payload of {length} bytes"):
        read_length(pack_length(length), 10)


def test_pruned_weights_stay_zero_and_their_gradients_take_no_place(alone):
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach(model, {"scheme": "netsense", "prune": 0.5})
    masks = [p.detach() == 0 for p in model.parameters() if p.dim() == 2]
    assert [int(mask.sum()) for mask in masks] == [600, 150]
    before = [p.detach().clone() for p in model.parameters() if p.dim() == 2]
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 40)).square().sum().backward()
        optimizer.step()
    after = [p.detach() for p in model.parameters() if p.dim() == 2]
    assert all(bool((weight[mask] == 0).all()) for weight, mask in zip(after, masks, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
