import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workloads.compression.codec import HEADER_BYTES, Codec, Header, PayloadError
from workloads.compression.memory import Memory, MomentumCorrection, NoMemory, Residual
from workloads.compression.natural import Natural
from workloads.compression.qsgd import QSGD
from workloads.compression.randomk import RandomK
from workloads.compression.topk import TopK, kept

finite = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32))
ratios = st.floats(0.001, 1.0)


def reference(values: np.ndarray, ratio: float) -> np.ndarray:
    """Keep the k largest magnitudes, the earlier of equal ones first."""
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[: kept(len(values), ratio)]
    dense = np.zeros_like(values)
    dense[order] = values[order]
    return dense


@given(finite, ratios)
@settings(deadline=None)
def test_top_k_sends_exactly_the_largest_values(values: np.ndarray, ratio: float) -> None:
    payload = TopK().encode(torch.from_numpy(values), ratio)
    assert np.array_equal(TopK().decode(payload).numpy(), reference(values, ratio))
    assert payload.numel() == HEADER_BYTES + 8 * kept(values.size, ratio)


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


def test_k_is_the_floor_of_ratio_times_n_and_at_least_one() -> None:
    assert [kept(10, 0.25), kept(3, 0.01), kept(100, 0.29), kept(30, 0.1), kept(7, 1.0), kept(0, 0.5)] == [2, 1, 29, 3, 7, 0]
    with pytest.raises(ValueError, match="ratio"):
        kept(10, 0.0)


def test_large_selection_matches_a_full_sort() -> None:
    values = np.random.default_rng(1).standard_normal(200_003).astype(np.float32) ** 3
    sent = TopK().decode(TopK().encode(torch.from_numpy(values), 0.01)).numpy()
    threshold = np.sort(np.abs(values))[-kept(values.size, 0.01)]
    assert np.array_equal(sent, np.where(np.abs(values) >= threshold, values, 0))


def test_not_a_number_and_infinity_are_sent_first_and_seen_by_all() -> None:
    values = torch.tensor([1.0, float("nan"), 5.0, float("-inf"), 2.0])
    decoded = TopK().decode(TopK().encode(values, 0.6))
    assert torch.isnan(decoded[1])
    assert decoded[[0, 2, 3, 4]].tolist() == [0.0, 5.0, float("-inf"), 0.0]


def test_encoding_is_deterministic_and_leaves_the_input_alone() -> None:
    values = torch.randn(1000)
    copy = values.clone()
    assert torch.equal(TopK().encode(values, 0.1), TopK().encode(values, 0.1))
    assert torch.equal(values, copy)


def test_a_payload_inside_a_larger_buffer_can_be_decoded() -> None:
    values = torch.randn(50)
    payload = TopK().encode(values, 0.2)
    shifted = torch.cat([torch.zeros(1, dtype=torch.uint8), payload])[1:]
    assert torch.equal(TopK().decode(shifted), TopK().decode(payload))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PayloadError):
        TopK().decode(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8))


@given(st.data())
@settings(deadline=None)
def test_a_damaged_payload_is_refused_or_decodes_to_the_claimed_size(data: st.DataObject) -> None:
    payload = TopK().encode(torch.arange(40, dtype=torch.float32), 0.3)
    position = data.draw(st.integers(0, payload.numel() - 1))
    payload[position] = data.draw(st.integers(0, 255))
    out = torch.zeros(40)
    try:
        TopK().add_decoded(payload, out)
    except PayloadError:
        assert torch.equal(out, torch.zeros(40))


@pytest.mark.parametrize(
    "header", [Header(1, 10, -1), Header(1, 1 << 40, 1), Header(1, 1, 2), Header(9, 10, 1), Header(1, 10, 1, dtype=3), Header(1, -5, -5)]
)
def test_forged_headers_are_refused(header: Header) -> None:
    body = bytearray(header.pack() + bytes(8))
    with pytest.raises(PayloadError):
        TopK().decode(torch.frombuffer(body, dtype=torch.uint8))


@pytest.mark.parametrize("cut", [1, 8, 30])
def test_truncated_payloads_are_refused(cut: int) -> None:
    payload = TopK().encode(torch.randn(100), 0.1)
    with pytest.raises(PayloadError):
        TopK().decode(payload[:-cut])
    with pytest.raises(PayloadError, match="100"):
        TopK().add_decoded(payload, torch.zeros(99))


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
