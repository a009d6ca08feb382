from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from workloads.compression.codec import FLOAT16, HEADER_BYTES, Header, PayloadError
from workloads.compression.memory import Residual
from workloads.compression.threelc import ThreeLC
from workloads.compression.threelc_kernels import DIGITS, RAW, half_of, scale_of, shorten_runs
from workloads.compression.threelc_torch import shorten_runs as shorten_runs_torch

SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
LARGEST = float(np.finfo(np.float32).max)
both_paths = pytest.mark.parametrize("force_torch", [False, True], ids=["compiled", "torch"])
sparsities = st.sampled_from([1.0, 1.25, 1.5, 1.75, 1.9, 2 - 2**-23])
finite = hnp.arrays(np.float32, st.integers(1, 400), elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
ternary = hnp.arrays(np.int8, st.integers(1, 600), elements=st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]))


def table_of(payload: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    k = int(payload[16:24].numpy().view(np.int64)[0])
    words = payload[HEADER_BYTES : HEADER_BYTES + 12 * k].numpy().view(np.int32).reshape(3, k)
    return words[0], words[1], words[2].view(np.float32)


def body_of(payload: Tensor) -> list[int]:
    """Return the body of a payload of one ternary tensor."""
    return payload[HEADER_BYTES + 12 :].tolist()


def forged(counts: Sequence[int], lengths: Sequence[int], scales: Sequence[float], rest: bytes, n: int | None = None) -> Tensor:
    header = Header(3, sum(counts) if n is None else n, len(counts))
    table = np.array([*counts, *lengths], np.int32).tobytes() + np.array(scales, np.float32).tobytes()
    return torch.frombuffer(bytearray(header.pack() + table + rest), dtype=torch.uint8)


@both_paths
@pytest.mark.parametrize(
    ("values", "body"),
    [
        ([0] * 5, [121]),
        ([-1] * 5, [0]),
        ([1] * 5, [242]),
        ([1, 0, -1, 0, 1], [194]),
        ([1, 0, -1, 0, 0, 1, -1], [171, 126]),
        ([0] * 7, [120, 117]),
        ([0] * 10, [243]),
        ([0] * 70, [255]),
    ],
)
def test_the_sheets_tensors_give_the_sheets_bytes(values: list[int], body: list[int], force_torch: bool) -> None:
    codec = ThreeLC(raw_below=0, force_torch=force_torch)
    payload = codec.encode(torch.tensor(values))
    assert body_of(payload) == body
    assert codec.decode(payload).tolist() == values


@pytest.mark.parametrize(
    ("data", "shortened"),
    [
        ([121], [121]),
        ([121] * 2, [243]),
        ([121] * 13, [254]),
        ([121] * 14, [255]),
        ([121] * 15, [255, 121]),
        ([121] * 16, [255, 243]),
        ([5, 121, 121, 121, 242], [5, 244, 242]),
        ([7, 7, 121, 7] + [121] * 30, [7, 7, 121, 7, 255, 255, 243]),
    ],
)
def test_the_sheets_runs_give_the_sheets_bytes(data: list[int], shortened: list[int]) -> None:
    compiled = np.array(data, np.uint8)
    assert compiled[: shorten_runs(compiled)].tolist() == shortened
    assert shorten_runs_torch(torch.tensor(data, dtype=torch.uint8)).tolist() == shortened


@both_paths
def test_two_steps_with_error_feedback_are_the_sheets(force_torch: bool) -> None:
    codec, memory = ThreeLC(raw_below=0, force_torch=force_torch), Residual()
    steps = [
        ([0.4, -0.1, 0.15, -0.3, 0, 0.05, 0.25, -0.02, 0.11, -0.21], 0.4, [205, 93]),
        ([0.1, -0.1, 0.1, 0, 0.02, 0.2, -0.05, 0, 0.06, 0.01], 0.25, [146, 50]),
    ]
    for gradient, scale, body in steps:
        compensated = memory.compensate(0, "layout", torch.tensor(gradient))
        payload = codec.encode(compensated)
        memory.keep(0, compensated, payload, codec)
        assert body_of(payload) == body
        assert table_of(payload)[2] == pytest.approx([scale])
        if scale == 0.4:
            assert compensated.tolist() == pytest.approx([0, -0.1, 0.15, 0.1, 0, 0.05, -0.15, -0.02, 0.11, 0.19])


@given(finite, sparsities)
@settings(deadline=None, max_examples=200)
def test_what_is_sent_and_what_is_kept_make_up_the_gradient(values: np.ndarray, sparsity: float) -> None:
    codec, memory, gradient = ThreeLC(sparsity, raw_below=0), Residual(), torch.from_numpy(values)
    error = memory.compensate(0, "layout", gradient)
    payload = codec.encode(error)
    memory.keep(0, error, payload, codec)
    decoded, scale = codec.decode(payload), float(table_of(payload)[2][0])
    assert torch.equal(decoded + error, gradient)
    assert error.abs().max() <= scale / 2
    assert bool(decoded.any()) == bool(gradient.any()), "the largest value is always sent"
    assert torch.equal(payload, ThreeLC(sparsity, raw_below=0, force_torch=True).encode(gradient))


def test_error_feedback_over_many_steps_loses_nothing() -> None:
    codec, memory, generator = ThreeLC(1.5), Residual(), torch.Generator().manual_seed(1)
    sizes = (600, 40, 360)
    inputs, sent = torch.zeros(1000, dtype=torch.float64), torch.zeros(1000, dtype=torch.float64)
    for _ in range(50):
        gradient = torch.randn(1000, generator=generator)
        compensated = memory.compensate(0, "layout", gradient)
        payload = codec.encode(compensated, sizes=sizes)
        memory.keep(0, compensated, payload, codec)
        inputs += gradient
        codec.add_decoded(payload, sent)
    assert torch.allclose(sent + compensated, inputs, atol=1e-4)


@given(ternary, sparsities, st.floats(2.0**-100, 2.0**100, width=32))
@settings(deadline=None)
def test_ternary_values_make_the_trip_unharmed(quantised: np.ndarray, sparsity: float, magnitude: float) -> None:
    codec = ThreeLC(sparsity, raw_below=0)
    payload = codec.encode(torch.from_numpy(quantised) * magnitude)
    for decoder in (codec, ThreeLC(force_torch=True)):
        assert np.array_equal(np.sign(decoder.decode(payload).numpy()), quantised)


def test_all_243_bytes_stand_for_their_five_digits() -> None:
    values = DIGITS.T.reshape(-1).astype(np.float32)  # five contiguous parts
    payload = ThreeLC().encode(torch.from_numpy(values))
    assert body_of(payload) == list(range(243))
    assert np.array_equal(ThreeLC().decode(payload).numpy(), values)


def limits(scale: np.float32) -> np.ndarray:
    """Return float32 numbers around M/2 and at the ends of what may occur."""
    half = (scale / 2).astype(np.float32) if scale else np.float32(0)
    near = [half]
    for _ in range(3):
        near = [np.nextafter(near[0], np.float32(0)), *near, np.nextafter(near[-1], np.float32(np.inf))]
    positive = np.minimum(np.abs(np.array([*near, 0, SMALLEST, scale], np.float32)), scale)
    return np.concatenate([positive, -positive])


@given(st.floats(0, width=32, allow_infinity=False), sparsities)
@settings(deadline=None, max_examples=500)
def test_comparing_with_half_the_scale_is_rounding_the_quotient(largest: float, sparsity: float) -> None:
    scale = np.float32(scale_of(np.float32(largest), np.float32(sparsity)))
    half, values = np.float32(half_of(scale)), limits(scale)
    compared = (values > half).astype(int) - (values < -half).astype(int)
    quotient = values / scale if scale else np.zeros_like(values)
    assert quotient.dtype == np.float32
    assert np.array_equal(compared, np.rint(quotient))


def test_comparing_is_rounding_for_every_small_denormal_and_many_mantissas() -> None:
    scales = [np.uint32(bits).view(np.float32) for at in (151, 1 << 23, 1 << 24) for bits in range(at - 150, at + 150)]
    scales += list(np.random.default_rng(1).integers(1, 0x7F7FFFFF, 2000, dtype=np.uint32).view(np.float32))
    for scale in scales:
        half, values = np.float32(half_of(scale)), limits(scale)
        assert np.array_equal((values > half).astype(int) - (values < -half).astype(int), np.rint(values / scale))


@both_paths
@pytest.mark.parametrize("sparsity", [1.0, 1.9, 2 - 2**-23])
@pytest.mark.parametrize("magnitude", [SMALLEST, 3 * SMALLEST, 1e-40, 2.0**-126, 1e-37, 3e38, LARGEST])
def test_the_largest_value_is_sent_at_either_end_of_float32(magnitude: float, sparsity: float, force_torch: bool) -> None:
    codec = ThreeLC(sparsity, raw_below=0, force_torch=force_torch)
    payload = codec.encode(torch.tensor([0.0, magnitude, -magnitude, 0.0]))
    decoded = codec.decode(payload)
    assert decoded.isfinite().all()
    assert decoded.sign().tolist() == [0, 1, -1, 0]
    assert decoded[1] >= magnitude


def mixed(n: int = 3000) -> Tensor:
    values = torch.randn(n, generator=torch.Generator().manual_seed(7)) ** 3
    values[n // 3 : n // 2] = 0
    return values


@pytest.mark.parametrize("sizes", [(), (3000,), (256, 255, 1, 2488), (1,) * 3000, (0, 1500, 0, 1500), (7, 993, 2000)])
@pytest.mark.parametrize("sparsity", [1.0, 1.75])
def test_both_paths_write_the_same_bytes_and_add_the_same_numbers(sizes: tuple[int, ...], sparsity: float) -> None:
    compiled, in_torch = ThreeLC(sparsity), ThreeLC(sparsity, force_torch=True)
    payload = compiled.encode(mixed(), sizes=sizes)
    assert torch.equal(payload, in_torch.encode(mixed(), sizes=sizes))
    first, second = torch.ones(3000), torch.ones(3000)
    compiled.add_decoded(payload, first, scale=0.3)
    in_torch.add_decoded(payload, second, scale=0.3)
    assert torch.equal(first, second)


@both_paths
def test_each_tensor_is_scaled_by_itself_and_small_ones_travel_raw(force_torch: bool) -> None:
    codec, values = ThreeLC(force_torch=force_torch), mixed()
    sizes = (1000, 255, 1745)
    payload = codec.encode(values, sizes=sizes)
    counts, lengths, scales = table_of(payload)
    large, small, other = values.split(sizes)
    assert counts.tolist() == list(sizes) and lengths[1] == RAW
    assert scales.tolist() == [large.abs().max().item(), 0.0, other.abs().max().item()]
    assert torch.equal(codec.decode(payload)[1000:1255], small)
    alone = ThreeLC(force_torch=force_torch).decode(ThreeLC().encode(large))
    assert torch.equal(codec.decode(payload)[:1000], alone)


@both_paths
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_tensor_that_is_not_finite_arrives_as_nan_and_the_others_whole(bad: float, force_torch: bool) -> None:
    codec, values = ThreeLC(force_torch=force_torch), mixed()
    values[1700] = bad
    payload = codec.encode(values, sizes=(1500, 1000, 500))
    first, second, third = codec.decode(payload).split([1500, 1000, 500])
    assert second.isnan().all() and first.isfinite().all() and third.isfinite().all()
    raw = codec.decode(codec.encode(values, sizes=(1690, 20, 1290)))
    assert (~raw.isfinite()).nonzero().tolist() == [[1700]], "a raw tensor shows where"


@both_paths
def test_zeros_empty_and_single_elements_make_the_trip(force_torch: bool) -> None:
    codec = ThreeLC(force_torch=force_torch, raw_below=0)
    assert codec.decode(codec.encode(torch.zeros(1000))).tolist() == [0.0] * 1000
    assert codec.encode(torch.zeros(0)).numel() == HEADER_BYTES and codec.decode(codec.encode(torch.zeros(0))).numel() == 0
    assert codec.decode(codec.encode(torch.tensor([-2.5]))).tolist() == [-2.5]
    assert ThreeLC(force_torch=force_torch).decode(ThreeLC().encode(torch.tensor([-2.5]))).tolist() == [-2.5]


@both_paths
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_tensor_and_stride_is_encoded_as_float32(dtype: torch.dtype, force_torch: bool) -> None:
    codec, values = ThreeLC(force_torch=force_torch), mixed().to(dtype)
    copy = values.clone()
    assert torch.equal(codec.encode(values), codec.encode(values.float()))
    assert torch.equal(codec.encode(values[::3]), codec.encode(values[::3].clone()))
    assert torch.equal(values, copy), "encoding leaves the input alone"
    out = torch.zeros(6000, dtype=dtype)
    codec.add_decoded(codec.encode(values), out[::2], scale=2.0)
    assert torch.equal(out[::2], (2 * codec.decode(codec.encode(values))).to(dtype)) and not out[1::2].any()


@pytest.mark.parametrize("sparsity", [0.99, 2.0, 2 - 1e-12, float("nan"), -1.0])
def test_a_sparsity_multiplier_outside_1_to_2_is_refused(sparsity: float) -> None:
    with pytest.raises(ValueError, match="sparsity"):
        ThreeLC(sparsity)


@pytest.mark.parametrize("sizes", [(9,), (5, 6), (11, -1), (0,)])
def test_sizes_that_do_not_add_up_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sizes"):
        ThreeLC().encode(torch.ones(10), sizes=sizes)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@both_paths
@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_a_payload_inside_a_larger_buffer_can_be_decoded(offset: int, force_torch: bool) -> None:
    codec = ThreeLC(force_torch=force_torch)
    payload = codec.encode(mixed(), sizes=(100, 2900))
    shifted = torch.cat([torch.zeros(offset, dtype=torch.uint8), payload])[offset:]
    assert torch.equal(codec.decode(shifted), codec.decode(payload))
    read_only = torch.from_numpy(np.frombuffer(bytes(offset) + bytes(payload.tolist()), np.uint8, offset=offset))
    assert torch.equal(codec.decode(read_only), codec.decode(payload))


HOSTILE = {
    "no room for the table": Header(3, 5, 5).pack() + bytes(12),
    "more tensors than elements": Header(3, 1, 2).pack() + bytes(24),
    "too many elements": Header(3, 1 << 40, 1).pack() + bytes(13),
    "another dtype": Header(3, 5, 1, FLOAT16).pack() + bytes(12) + b"\x79",
    "counts short of n": forged([4], [1], [1.0], b"\x79", n=5),
    "counts beyond n": forged([4, 4], [1, 1], [1.0, 1.0], b"\x79\x79", n=5),
    "a negative count": forged([10, -5], [2, 1], [1.0, 1.0], b"\x79\x79\x79", n=5),
    "counts that wrap around": forged([2**31 - 1, 2**31 - 1, 7], [1, 1, 1], [1.0] * 3, b"\x79" * 3, n=5),
    "an empty tensor": forged([0, 5], [1, 1], [1.0, 1.0], b"\x79\x79"),
    "an empty body": forged([5], [0], [1.0], b""),
    "a negative length": forged([5], [-2], [1.0], b"\x79"),
    "a body longer than needed": forged([5], [2], [1.0], b"\x79\x79"),
    "a body cut short": forged([5, 5], [1, 1], [1.0, 1.0], b"\x79"),
    "bytes left over": forged([5], [1], [1.0], b"\x79\x79"),
    "a run past the end": forged([10], [1], [1.0], b"\xff"),
    "a run past the end, later": forged([10, 15], [2, 2], [1.0, 1.0], b"\x00\x00\x00\xf5"),
    "too few bytes": forged([15], [2], [1.0], b"\x00\x00"),
    "a negative scale": forged([5], [1], [-1.0], b"\x79"),
    "an infinite scale": forged([5], [1], [float("inf")], b"\x79"),
    "raw values cut short": forged([5], [RAW], [0.0], bytes(19)),
    "few bytes for very many elements": forged([1 << 29], [1], [1.0], b"\xff"),
}


@both_paths
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_payloads_are_refused_before_anything_is_written(name: str, force_torch: bool) -> None:
    hostile = HOSTILE[name]
    payload = hostile if isinstance(hostile, Tensor) else torch.frombuffer(bytearray(hostile), dtype=torch.uint8)
    n = int(payload[8:16].numpy().view(np.int64)[0])
    out = torch.ones(n if n < 1000 else 10)
    with pytest.raises(PayloadError):
        ThreeLC(force_torch=force_torch).add_decoded(payload, out)
    assert torch.equal(out, torch.ones(out.numel()))


def test_few_bytes_for_very_many_elements_are_refused_without_using_the_memory() -> None:
    with pytest.raises(PayloadError, match="expand"):
        ThreeLC().decode(HOSTILE["few bytes for very many elements"])


@both_paths
@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_damaged_payloads_are_refused_or_decode_to_the_claimed_size(data: st.DataObject, force_torch: bool) -> None:
    codec = ThreeLC(force_torch=force_torch, raw_below=20)
    damaged = bytearray(codec.encode(mixed(120), sizes=(10, 80, 30)).numpy().tobytes())
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    damaged += data.draw(st.binary(max_size=5))
    out = torch.ones(120)
    try:
        codec.add_decoded(torch.from_numpy(np.frombuffer(damaged, np.uint8).copy()), out)
    except PayloadError:
        assert torch.equal(out, torch.ones(120))


@both_paths
@given(st.binary(max_size=60), st.integers(1, 40), st.integers(1, 3))
@settings(deadline=None)
def test_random_bytes_are_refused_or_decode_to_the_claimed_size(force_torch: bool, data: bytes, n: int, k: int) -> None:
    codec, out = ThreeLC(force_torch=force_torch), torch.ones(n)
    for head in (b"", Header(3, n, k).pack(), Header(3, n, 1).pack() + np.array([n, len(data)], np.int32).tobytes() + bytes(4)):
        try:
            codec.add_decoded(torch.from_numpy(np.frombuffer(head + data, np.uint8).copy()), out)
        except PayloadError:
            assert torch.equal(out, torch.ones(n))
        out.fill_(1.0)


@both_paths
def test_a_payload_for_another_tensor_is_refused(force_torch: bool) -> None:
    payload = ThreeLC().encode(mixed())
    with pytest.raises(PayloadError, match="3000"):
        ThreeLC(force_torch=force_torch).add_decoded(payload, torch.zeros(2999))
