import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workloads.compression.codec import Codec
from workloads.compression.memory import Memory, NoMemory, Residual
from workloads.compression.momentum import MomentumCorrection
from workloads.compression.natural import Natural
from workloads.compression.qsgd import QSGD
from workloads.compression.randomk import RandomK
from workloads.compression.topk import TopK

finite = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32))
ratios = st.floats(0.001, 1.0)


@given(finite, ratios)
@settings(deadline=None)
def test_what_is_sent_and_what_is_kept_make_up_the_gradient(values: np.ndarray, ratio: float) -> None:
    codec, memory, gradient = TopK(), Residual(), torch.from_numpy(values)
    first = memory.compensate(0, "layout", gradient.clone())
    before = first.clone()
    payload = codec.encode(first, ratio)
    memory.keep(0, first, payload, codec)
    assert torch.equal(codec.decode(payload) + first, before)
    second = memory.compensate(0, "layout", torch.zeros_like(gradient))
    assert torch.equal(second + codec.decode(payload), gradient)


def test_a_residual_is_dropped_when_the_bucket_holds_other_parameters() -> None:
    memory = Residual()
    memory.compensate(0, "a", torch.ones(4))
    assert torch.equal(memory.compensate(0, "b", torch.ones(4)), torch.ones(4))
    assert torch.equal(memory.compensate(0, "b", torch.ones(6)), torch.ones(6))
    memory.reset()
    assert torch.equal(memory.compensate(0, "b", torch.ones(6)), torch.ones(6))


def test_no_memory_returns_the_gradient_itself() -> None:
    gradient = torch.ones(3)
    assert NoMemory().compensate(0, "a", gradient) is gradient


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_residual_is_at_least_single_precision(dtype: torch.dtype) -> None:
    for memory in (Residual(), MomentumCorrection()):
        compensated = memory.compensate(0, "a", torch.ones(4, dtype=dtype))
        assert compensated.dtype == torch.promote_types(dtype, torch.float32)
        memory.keep(0, compensated, TopK().encode(compensated, 0.5), TopK())
        assert memory.compensate(0, "a", torch.zeros(4, dtype=dtype)).count_nonzero() >= 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("codec", [TopK(), RandomK(), QSGD(), Natural()], ids=lambda codec: type(codec).__name__)
@pytest.mark.parametrize("make", [Residual, MomentumCorrection])
def test_a_gradient_that_is_not_finite_spoils_one_step_only(make: type[Memory], codec: Codec, dtype: torch.dtype, bad: float) -> None:
    memory = make()
    gradient = torch.ones(100, dtype=dtype)
    gradient[[3, 50, 70]] = bad
    first = memory.compensate(0, "a", gradient)
    payload = codec.encode(first, 0.1)
    assert not codec.decode(payload).isfinite().all()
    memory.keep(0, first, payload, codec)
    assert first.isfinite().all()
    second = memory.compensate(0, "a", torch.ones(100, dtype=dtype))
    assert second.isfinite().all() and codec.decode(codec.encode(second, 0.1)).isfinite().all()


@pytest.mark.parametrize("make", [Residual, MomentumCorrection])
def test_a_slot_delivered_exactly_begins_anew_and_leaves_what_was_returned_alone(make: type[Memory]) -> None:
    memory = make()
    for slot in (0, 1):
        returned = memory.compensate(slot, "a", torch.ones(4))
    memory.clear(0)
    memory.clear(7)
    assert torch.equal(returned, torch.ones(4))
    assert torch.equal(memory.compensate(0, "a", torch.ones(4)), torch.ones(4))
    assert not torch.equal(memory.compensate(1, "a", torch.ones(4)), torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_momentum_correction_is_that_of_deep_gradient_compression(dtype: torch.dtype) -> None:
    memory, codec = MomentumCorrection(0.5), TopK()
    velocity, residual = torch.zeros(40, dtype=dtype), torch.zeros(40, dtype=dtype)
    for step in range(6):
        gradient = torch.randn(40, generator=torch.Generator().manual_seed(step)).to(dtype)
        velocity = 0.5 * velocity + gradient
        residual = residual + velocity
        compensated = memory.compensate(0, "a", gradient)
        torch.testing.assert_close(compensated, residual)
        payload = codec.encode(compensated, 0.2)
        memory.keep(0, compensated, payload, codec)
        sent = codec.decode(payload)
        residual, velocity = residual - sent, velocity.masked_fill(sent != 0, 0.0)
        torch.testing.assert_close(compensated, residual)


def test_momentum_correction_forgets_other_parameters_and_refuses_to_accelerate() -> None:
    memory = MomentumCorrection()
    memory.compensate(0, "a", torch.ones(4))
    assert torch.equal(memory.compensate(0, "b", torch.ones(4)), torch.ones(4))
    memory.reset()
    assert torch.equal(memory.compensate(0, "b", torch.ones(4)), torch.ones(4))
    with pytest.raises(ValueError, match="momentum"):
        MomentumCorrection(1.0)
