import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from workloads.compression.topk import TopK, kept
from workloads.hooks import attach, detach, stats
from workloads.schemes import SchemeError

ELEMENTS = 20 * 30 + 30


def gradient(model: DistributedDataParallel, seed: int) -> torch.Tensor:
    model.zero_grad()
    inputs = torch.randn(4, 20, generator=torch.Generator().manual_seed(seed))
    model(inputs).square().sum().backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def test_a_plain_script_gets_sparse_gradients_that_lose_nothing(model: DistributedDataParallel) -> None:
    dense = gradient(model, 1)
    attach(model, "topk-0.1")
    sums, expected = torch.zeros(ELEMENTS), torch.zeros(ELEMENTS)
    gradient(model, 1)
    for _ in range(30):
        sent = gradient(model, 1)
        assert int((sent != 0).sum()) == kept(ELEMENTS, 0.1)
        sums, expected = sums + sent, expected + dense
    # error feedback: what was not sent yet is bounded, so the mean sent gradient comes near the dense one
    assert (sums - expected).norm() / expected.norm() < 0.25
    assert stats(model).steps == 31
    assert stats(model).dense_bytes == 31 * 4 * ELEMENTS


def test_the_largest_gradients_are_sent_first(model: DistributedDataParallel) -> None:
    dense = gradient(model, 1)
    attach(model, {"scheme": "topk", "ratio": 0.05})
    sent = gradient(model, 1)
    assert set(sent.nonzero().flatten().tolist()) == set(TopK().decode(TopK().encode(dense, 0.05)).nonzero().flatten().tolist())


def test_detaching_and_attaching_again(model: DistributedDataParallel) -> None:
    dense = gradient(model, 1)
    attach(model, "fp16")
    assert torch.allclose(gradient(model, 1), dense, rtol=1e-3, atol=1e-3)
    assert not torch.equal(gradient(model, 1), dense)
    detach(model)
    assert torch.equal(gradient(model, 1), dense)
    attach(model, "topk-0.5")
    assert int((gradient(model, 1) != 0).sum()) == ELEMENTS // 2


def test_the_uncompressed_baseline_is_stock_ddp_and_still_counted(model: DistributedDataParallel) -> None:
    attachment = attach(model, "none")
    assert not attachment.has_hook
    gradient(model, 1)
    with model.no_sync():
        gradient(model, 2)
    gradient(model, 3)
    assert stats(model).steps == 2
    assert attachment.take().dense_bytes == 4 * ELEMENTS


def test_an_assisted_scheme_says_that_it_has_no_telemetry(model: DistributedDataParallel, recwarn: pytest.WarningsRecorder) -> None:
    attach(model, "netsense")
    attach(model, "netsense-sdn", telemetry="/nowhere/board.bin")
    assert "telemetry" not in "".join(str(warning.message) for warning in recwarn)
    gradient(model, 1)  # a board that is not there is no reason to fail
    with pytest.warns(UserWarning, match="netsense-sdn was given no telemetry"):
        attach(model, "netsense-sdn")


def test_mistakes_are_explained(model: DistributedDataParallel) -> None:
    with pytest.raises(ValueError, match="attach"):
        stats(model)
    with pytest.raises(SchemeError, match="topk"):
        attach(model, "tokp-0.1")
