import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workloads.compression import selection
from workloads.compression.codec import BFLOAT16, FLOAT16, HEADER_BYTES, Codec, Header, PayloadError, read_header
from workloads.compression.sampled import SampledTopK
from workloads.compression.selection import select_largest, select_largest_torch
from workloads.compression.topk import TopK, kept

any_floats = hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(width=32))
ratios = st.floats(0.001, 1.0)
codecs = pytest.mark.parametrize(
    "codec",
    [TopK(), TopK(force_torch=True), TopK(0.5), SampledTopK(), SampledTopK(force_torch=True)],
    ids=lambda codec: type(codec).__name__,
)
LARGE = 8 * selection.SAMPLE + 5  # from here on a sample narrows the selection


def magnitude_bits(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32) & np.uint32(0x7FFFFFFF)


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the ascending indices of the k largest magnitudes, of equal ones the lowest, by a full stable sort."""
    return np.sort(np.argsort(~magnitude_bits(values), kind="stable")[:k])


def selected(values: np.ndarray, k: int) -> np.ndarray:
    found = np.empty(k, np.int32)
    select_largest(values.view(np.uint32), found)
    return found


def selected_torch(values: np.ndarray, k: int) -> np.ndarray:
    found = torch.empty(k, dtype=torch.int32)
    select_largest_torch(torch.from_numpy(values), found)
    return found.numpy()


def indices_of(payload: torch.Tensor) -> np.ndarray:
    k = read_header(payload, payload[5].item()).k
    return payload[HEADER_BYTES : HEADER_BYTES + 4 * k].numpy().view(np.int32)


@given(any_floats, ratios)
@settings(deadline=None)
def test_exactly_the_largest_are_sent_whatever_the_values(values: np.ndarray, ratio: float) -> None:
    payload = TopK().encode(torch.from_numpy(values), ratio)
    expected = largest(values, kept(values.size, ratio))
    assert np.array_equal(indices_of(payload), expected)
    dense = np.zeros_like(values)
    dense[expected] = values[expected]
    assert np.array_equal(TopK().decode(payload).numpy(), dense, equal_nan=True)
    assert torch.equal(payload, TopK(force_torch=True).encode(torch.from_numpy(values), ratio))


def adversaries() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    normal = rng.standard_normal(LARGE).astype(np.float32)
    spikes = np.full(LARGE, 1e-3, np.float32)
    spikes[rng.integers(0, LARGE, 50)] = np.arange(50)
    strange = normal.copy()
    strange[::1000], strange[1::1000], strange[2::1000] = np.nan, np.inf, -np.inf
    return {
        "like a gradient": normal**3 * np.float32(1e-3),
        "all equal": np.ones(LARGE, np.float32),
        "all zero": np.zeros(LARGE, np.float32),
        "zeros of both signs": np.where(normal > 0, np.float32(0), -np.float32(0)),
        "rising": np.arange(LARGE, dtype=np.float32),
        "falling": np.arange(LARGE, dtype=np.float32)[::-1].copy(),
        "denormal": (normal * 1e-41).astype(np.float32),
        "few values": rng.integers(-2, 3, LARGE).astype(np.float32),
        "few large ones": spikes,
        "not all finite": strange,
        "all not a number": np.full(LARGE, np.nan, np.float32),
        "two halves": np.where(np.arange(LARGE) < LARGE // 2, normal * 1e-20, normal).astype(np.float32),
    }


ADVERSARIES = adversaries()


@pytest.mark.parametrize("name", ADVERSARIES)
def test_large_selections_match_a_full_sort(name: str) -> None:
    values = ADVERSARIES[name]
    ranked = np.argsort(~magnitude_bits(values), kind="stable")
    for ratio in (1e-5, 0.001, 0.1, 0.25, 0.6):
        k = kept(LARGE, ratio)
        assert np.array_equal(selected(values, k), np.sort(ranked[:k]))
    assert np.array_equal(selected_torch(values, k), np.sort(ranked[:k]))


def test_a_misleading_sample_does_not_change_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ADVERSARIES["like a gradient"]
    k = kept(LARGE, 0.01)
    expected = largest(values, k)
    by_magnitude = np.argsort(np.abs(values)).astype(np.int32)
    for positions in (by_magnitude[-selection.SAMPLE :], by_magnitude[: selection.SAMPLE]):
        monkeypatch.setattr(selection, "sample_positions", lambda n, count, generator, drawn=positions: drawn)
        assert np.array_equal(selected(values, k), expected)


def test_torch_operations_select_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "CHUNK", 7)
    values = np.random.default_rng(2).integers(-4, 5, 100).astype(np.float32)
    for k in (1, 20, 50, 99, 100):
        assert np.array_equal(selected(values, k), selected_torch(values, k))
    payloads = [SampledTopK(force_torch=choice).encode(torch.from_numpy(values), 0.3) for choice in (False, True)]
    assert torch.equal(*payloads)


def test_k_is_the_floor_of_ratio_times_n_and_at_least_one() -> None:
    assert [kept(10, 0.25), kept(3, 0.01), kept(100, 0.29), kept(30, 0.1), kept(7, 1.0), kept(0, 0.5)] == [2, 1, 29, 3, 7, 0]


@codecs
@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, float("nan")])
def test_a_ratio_outside_0_to_1_is_refused(codec: Codec, ratio: float) -> None:
    with pytest.raises(ValueError, match="ratio"):
        codec.encode(torch.ones(10), ratio)


@pytest.mark.parametrize("half_below", [-0.1, 1.5, float("nan")])
def test_half_precision_below_no_ratio_is_refused(half_below: float) -> None:
    with pytest.raises(ValueError, match="half_below"):
        TopK(half_below)


@pytest.mark.parametrize(("half_below", "ratio"), [(0.0, 0.1), (0.2, 0.1), (0.1, 0.1), (0.2, 1.0)])
@pytest.mark.parametrize("n", [0, 1, 1003])
def test_the_length_of_a_payload_is_known_beforehand(n: int, half_below: float, ratio: float) -> None:
    codec = TopK(half_below)
    assert codec.encode(torch.randn(n), ratio).numel() == codec.payload_bytes(n, ratio)


@given(any_floats)
@settings(deadline=None)
def test_half_precision_saturates_and_keeps_what_is_not_finite(values: np.ndarray) -> None:
    payload = TopK(half_below=1.0).encode(torch.from_numpy(values), 0.999)
    assert torch.equal(payload, TopK(half_below=1.0, force_torch=True).encode(torch.from_numpy(values), 0.999))
    assert read_header(payload, 1).dtype == FLOAT16
    sent = values[indices_of(payload)]
    with np.errstate(over="ignore"):
        expected = np.where(np.isfinite(sent), np.clip(sent, -65504, 65504), sent).astype(np.float16)
    assert np.array_equal(TopK().decode(payload).numpy()[indices_of(payload)], expected.astype(np.float32), equal_nan=True)
    assert np.array_equal(np.isfinite(expected), np.isfinite(sent))


def test_not_a_number_and_infinity_are_sent_first_and_seen_by_all() -> None:
    values = torch.tensor([1.0, float("nan"), 5.0, float("-inf"), 2.0])
    decoded = TopK().decode(TopK().encode(values, 0.6))
    assert torch.isnan(decoded[1])
    assert decoded[[0, 2, 3, 4]].tolist() == [0.0, 5.0, float("-inf"), 0.0]


@codecs
def test_encoding_is_deterministic_and_leaves_the_input_alone(codec: Codec) -> None:
    values = torch.randn(1000)
    copy = values.clone()
    assert torch.equal(codec.encode(values, 0.1), codec.encode(values, 0.1))
    assert torch.equal(values, copy)


@codecs
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_tensor_and_stride_is_encoded_as_float32(codec: Codec, dtype: torch.dtype) -> None:
    values = torch.randn(301).to(dtype)
    assert torch.equal(codec.encode(values, 0.1), codec.encode(values.float(), 0.1))
    assert torch.equal(codec.encode(values[::3], 0.1), codec.encode(values[::3].clone(), 0.1))
    out = torch.zeros(301, dtype=dtype)
    codec.add_decoded(codec.encode(values, 0.1), out, scale=2.0)
    assert torch.equal(out, (2 * codec.decode(codec.encode(values, 0.1))).to(dtype))


@codecs
def test_decoding_reaches_every_other_element_of_a_larger_tensor(codec: Codec) -> None:
    payload = codec.encode(torch.randn(50), 0.2)
    out = torch.zeros(100)
    codec.add_decoded(payload, out[::2])
    assert torch.equal(out[::2], codec.decode(payload)) and torch.equal(out[1::2], torch.zeros(50))


@codecs
def test_a_payload_inside_a_larger_buffer_can_be_decoded(codec: Codec) -> None:
    payload = codec.encode(torch.randn(50), 0.2)
    shifted = torch.cat([torch.zeros(1, dtype=torch.uint8), payload])[1:]
    assert torch.equal(codec.decode(shifted), codec.decode(payload))


@given(any_floats, ratios, st.integers(0, 5))
@settings(deadline=None)
def test_sampled_selection_sends_all_that_reaches_its_threshold(values: np.ndarray, ratio: float, seed: int) -> None:
    codec = SampledTopK(sample=20, seed=seed)
    payload = codec.encode(torch.from_numpy(values), ratio)
    assert torch.equal(payload, SampledTopK(sample=20, seed=seed, force_torch=True).encode(torch.from_numpy(values), ratio))
    sent, bits = indices_of(payload), magnitude_bits(values)
    assert 1 <= sent.size <= values.size
    if bits.any():
        assert np.array_equal(sent, np.flatnonzero(bits >= bits[sent].min())) and bits[sent].min() > 0
    codec.reseed(seed)
    assert torch.equal(codec.encode(torch.from_numpy(values), ratio), payload)


@pytest.mark.parametrize("ratio", [0.1, 0.01])
def test_a_sampled_selection_is_about_as_large_as_asked_for(ratio: float) -> None:
    values, codec = torch.from_numpy(np.random.default_rng(3).standard_normal(300_000).astype(np.float32) ** 3), SampledTopK(sample=1 << 14)
    counts = [indices_of(codec.encode(values, ratio)).size / kept(300_000, ratio) for _ in range(20)]
    deviation = ((1 - ratio) / (ratio * (1 << 14))) ** 0.5  # as the module says
    assert len(set(counts)) > 1, "each encoding draws a sample of its own"
    assert max(abs(count - 1) for count in counts) < 4 * deviation


def test_a_sample_that_is_the_whole_tensor_gives_the_exact_selection() -> None:
    values = torch.randn(5000)
    assert np.array_equal(indices_of(SampledTopK().encode(values, 0.1)), indices_of(TopK().encode(values, 0.1)))
    with pytest.raises(ValueError, match="sample"):
        SampledTopK(sample=0)


@pytest.mark.parametrize("force_torch", [False, True])
def test_zeros_cost_one_element(force_torch: bool) -> None:
    payload = SampledTopK(force_torch=force_torch).encode(torch.zeros(1000), 0.5)
    assert indices_of(payload).tolist() == [0]
    assert indices_of(SampledTopK(force_torch=force_torch).encode(torch.zeros(0), 0.5)).size == 0


@codecs
@given(data=st.binary(max_size=200))
@settings(deadline=None, max_examples=30)
def test_random_bytes_are_refused(codec: Codec, data: bytes) -> None:
    with pytest.raises(PayloadError):
        codec.decode(torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8))


@codecs
@given(data=st.data())
@settings(deadline=None, max_examples=50)
def test_a_damaged_payload_is_refused_or_decodes_to_the_claimed_size(codec: Codec, data: st.DataObject) -> None:
    payload = codec.encode(torch.arange(40, dtype=torch.float32), 0.3)
    position = data.draw(st.integers(0, payload.numel() - 1))
    payload[position] = data.draw(st.integers(0, 255))
    out = torch.zeros(40)
    try:
        codec.add_decoded(payload, out)
    except PayloadError:
        assert torch.equal(out, torch.zeros(40))


@pytest.mark.parametrize(
    "header",
    [Header(1, 10, -1), Header(1, 1 << 40, 1), Header(1, 1, 2), Header(9, 10, 1), Header(1, 10, 1, 3), Header(1, 10, 1, BFLOAT16)],
)
def test_forged_headers_are_refused(header: Header) -> None:
    body = bytearray(header.pack() + bytes(8))
    with pytest.raises(PayloadError):
        TopK().decode(torch.frombuffer(body, dtype=torch.uint8))


@codecs
@pytest.mark.parametrize("indices", [[3, 3], [5, 2], [-1, 4], [4, 10], [-(1 << 31), (1 << 31) - 1]])
def test_indices_out_of_order_or_range_are_refused(codec: Codec, indices: list[int]) -> None:
    body = Header(codec.codec_id, 10, 2).pack() + np.array(indices, np.int32).tobytes() + bytes(8)
    with pytest.raises(PayloadError, match="ascending"):
        codec.decode(torch.frombuffer(bytearray(body), dtype=torch.uint8))


@codecs
@pytest.mark.parametrize("cut", [1, 8, 30])
def test_truncated_payloads_are_refused(codec: Codec, cut: int) -> None:
    payload = codec.encode(torch.randn(100), 0.1)
    with pytest.raises(PayloadError):
        codec.decode(payload[:-cut])
    with pytest.raises(PayloadError, match="100"):
        codec.add_decoded(payload, torch.zeros(99))
