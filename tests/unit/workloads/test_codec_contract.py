"""What every codec promises, on both of its paths: compiled loops, and torch operations as on a GPU."""

import inspect
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from workloads.compression.codec import BFLOAT16, FLOAT32, HEADER_BYTES, Codec, Header, PayloadError, read_header
from workloads.compression.memory import Residual
from workloads.compression.registry import CODECS
from workloads.compression.terngrad import TernGrad
from workloads.compression.topk import kept

Make = Callable[[], Codec]
RATIO = 0.25
SIZES = (700, 1, 330, 9)
N = sum(SIZES)
STOCHASTIC = {"randomk", "qsgd", "terngrad", "natural"}
SPARSE_EXACT = {"topk", "topk-sampled", "randomk"}
ROUNDOFF = {"fp16": (2.0**-11, 2.0**-25), "topk-half": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 0.0)}  # relative; near zero


def paths(make: Make) -> dict[str, Make]:
    """Return the constructors of a codec's paths."""
    if "force_torch" not in inspect.signature(make).parameters:
        return {"": make}
    return {"": make, "-torch": partial(make, force_torch=True)}


VARIANTS = [pytest.param(name, variant, id=name + suffix) for name, make in CODECS.items() for suffix, variant in paths(make).items()]
every_codec = pytest.mark.parametrize(("name", "make"), VARIANTS)
few_examples = settings(deadline=None, max_examples=15)


def gradient(seed: int = 1, n: int = N) -> Tensor:
    """Return values of very different magnitudes, some of them zero."""
    values = torch.randn(n, generator=torch.Generator().manual_seed(seed)) ** 3
    values[::7] = 0.0
    return values


def encode(make: Make, values: Tensor, seed: int = 0) -> Tensor:
    codec = make()
    codec.reseed(seed)
    return codec.encode(values, RATIO, SIZES if values.numel() == N else ())


def assert_within_bound(name: str, values: Tensor, decoded: Tensor, sizes: tuple[int, ...]) -> None:
    """Check the error that a codec may make."""
    error, magnitude = (decoded - values).abs(), values.abs()
    sent = decoded != 0
    if name == "dense":
        assert torch.equal(decoded, values)
    elif name in ROUNDOFF:
        unit, least = ROUNDOFF[name]
        assert (error[sent] <= magnitude[sent] * unit + least).all()
        assert name == "topk-half" or (magnitude[~sent] <= least).all()
    elif name in SPARSE_EXACT:
        assert torch.equal(decoded[sent], values[sent])
    elif name == "qsgd":
        for part, part_error in zip(values.split(512), error.split(512), strict=True):
            assert (part_error <= part.double().norm() / 127 * 1.00001).all()
    elif name == "natural":
        assert torch.equal(decoded.sign(), values.sign())
        assert (decoded.abs() <= 2 * magnitude).all() and (decoded.abs() >= magnitude / 2).all()
    else:  # 3lc, terngrad, onebit: a few values between the extremes of each tensor
        share = 0.500001 if name == "3lc" else 1.0
        for part, part_error in zip(values.split(sizes), error.split(sizes), strict=True):
            assert (part_error <= share * part.abs().max()).all()
        assert (decoded * values >= 0).all()


def test_every_codec_has_its_own_identity() -> None:
    ids = [make().codec_id for name, make in CODECS.items() if name != "topk-half"]  # a choice of top-k's, not another codec
    assert len(set(ids)) == len(ids)


@every_codec
def test_what_arrives_is_close_to_what_was_sent(name: str, make: Make) -> None:
    for seed in range(3):
        values = gradient(seed)
        assert_within_bound(name, values, make().decode(encode(make, values, seed)), SIZES)


@every_codec
@given(values=hnp.arrays(np.float32, st.integers(1, 600), elements=st.floats(-30000, 30000, width=32, allow_subnormal=False)))
@few_examples
def test_any_numbers_arrive_within_the_codecs_error(name: str, make: Make, values: np.ndarray) -> None:
    given_values = torch.from_numpy(values)
    assert_within_bound(name, given_values, make().decode(encode(make, given_values)), (values.size,))


@every_codec
def test_error_feedback_loses_nothing(name: str, make: Make) -> None:
    codec, memory = make(), Residual()
    given_sum, sent_sum = torch.zeros(N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    for step in range(8):
        values = gradient(step)
        compensated = memory.compensate(0, "layout", values)
        payload = codec.encode(compensated, RATIO, SIZES)
        memory.keep(0, compensated, payload, codec)
        given_sum += values
        codec.add_decoded(payload, sent_sum)
    torch.testing.assert_close(sent_sum + compensated, given_sum, rtol=1e-5, atol=1e-3)


@every_codec
def test_the_seed_decides_all_random_numbers(name: str, make: Make) -> None:
    codec, values = make(), gradient()
    codec.reseed(3)
    first = [codec.encode(values, RATIO, SIZES) for _ in range(3)]
    codec.reseed(3)
    again = [codec.encode(values, RATIO, SIZES) for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = encode(make, values, seed=4)
    assert torch.equal(first[0], other) == torch.equal(first[0], first[1]) == (name not in STOCHASTIC)


@every_codec
def test_a_payload_is_one_row_of_bytes_that_describes_itself(name: str, make: Make) -> None:
    values = gradient()
    copy = values.clone()
    payload = encode(make, values)
    assert payload.dtype == torch.uint8 and payload.dim() == 1 and payload.is_contiguous() and payload.device == values.device
    assert read_header(payload, make().codec_id).n == N
    assert torch.equal(values, copy), "encoding must leave the gradient alone"


@every_codec
def test_both_paths_decode_each_others_payloads_alike(name: str, make: Make) -> None:
    payload = encode(make, gradient())
    decoded = [other().decode(payload) for other in paths(CODECS[name]).values()]
    assert all(torch.equal(decoded[0], other) for other in decoded)


@every_codec
def test_a_codec_of_fixed_size_sends_as_many_bytes_whatever_the_data(name: str, make: Make) -> None:
    if not make().fixed_size:
        pytest.skip("the length depends on the data")
    inputs = [gradient(1), gradient(2), torch.zeros(N), torch.ones(N), torch.full((N,), torch.nan)]
    assert len({encode(make, values).numel() for values in inputs}) == 1


@every_codec
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_decoding_adds_a_multiple_to_any_float_tensor(name: str, make: Make, dtype: torch.dtype) -> None:
    codec, payload = make(), encode(make, gradient() / 10)
    out = torch.ones(N, dtype=dtype)
    codec.add_decoded(payload, out, scale=-0.5)
    tolerance = 4 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 1e-6
    torch.testing.assert_close(out, (1 - 0.5 * codec.decode(payload)).to(dtype), rtol=tolerance, atol=tolerance)


@every_codec
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_any_float_dtype_is_encoded_as_float32(name: str, make: Make, dtype: torch.dtype) -> None:
    values = gradient().to(dtype)
    assert torch.equal(encode(make, values), encode(make, values.float()))


@every_codec
def test_any_memory_layout_is_encoded_in_reading_order(name: str, make: Make) -> None:
    values = gradient(n=2 * N)
    assert torch.equal(encode(make, values[::2]), encode(make, values[::2].clone()))
    matrix = values[:N].view(20, 52).t()
    assert torch.equal(encode(make, matrix), encode(make, matrix.reshape(-1)))


@every_codec
def test_zeros_stay_zeros(name: str, make: Make) -> None:
    assert torch.equal(make().decode(encode(make, torch.zeros(N))), torch.zeros(N))


@every_codec
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("position", [0, 701, N - 1])
def test_what_is_not_finite_arrives_not_finite(name: str, make: Make, bad: float, position: int) -> None:
    values = gradient()
    values[position] = bad
    finite = make().decode(encode(make, values)).isfinite()
    assert not finite.all()
    assert name == "randomk" or not finite[position]  # random-k tells it wherever it happened to draw


@every_codec
@pytest.mark.parametrize("n", [0, 1, 2, 511, 513])
def test_tensors_of_any_length_make_the_trip(name: str, make: Make, n: int) -> None:
    values = torch.linspace(-3.0, 5.0, n)
    decoded = make().decode(encode(make, values))
    assert decoded.shape == (n,)
    assert n == 0 or decoded.abs().max() > 0


@every_codec
def test_empty_tensors_among_others_do_no_harm(name: str, make: Make) -> None:
    values, codec = gradient(n=300), make()
    assert_within_bound(name, values, codec.decode(codec.encode(values, RATIO, (0, 100, 0, 200, 0))), (100, 200))
    assert codec.decode(codec.encode(torch.zeros(0), RATIO, (0, 0))).numel() == 0


@pytest.mark.parametrize("name", ["qsgd", "terngrad", "natural"])
@pytest.mark.parametrize("force_torch", [False, True])
def test_rounding_at_random_is_right_on_average(name: str, force_torch: bool) -> None:
    draws, values = 4000, gradient(n=512) / 10
    codec = TernGrad(0.0, force_torch=force_torch) if name == "terngrad" else list(paths(CODECS[name]).values())[force_torch]()
    codec.reseed(1)
    mean = codec.decode(codec.encode(values.repeat(draws))).view(draws, -1).double().mean(0)
    # a value between a and b = a + step has at most the deviation step / 2; of 512 means none is six of theirs away by chance
    step = {"qsgd": values.norm() / 127, "terngrad": values.abs().max(), "natural": values.abs()}[name]
    assert ((mean - values).abs() <= 6 * step / 2 / draws**0.5 + 1e-7).all()


@every_codec
def test_a_payload_may_lie_anywhere_in_a_larger_buffer(name: str, make: Make) -> None:
    payload, codec = encode(make, gradient()), make()
    for offset in (1, 2, 4):
        large = torch.cat([torch.zeros(offset, dtype=torch.uint8), payload, torch.zeros(3, dtype=torch.uint8)])
        assert torch.equal(codec.decode(large[offset:-3]), codec.decode(payload))


@every_codec
def test_a_payload_for_another_tensor_or_codec_is_refused(name: str, make: Make) -> None:
    payload, codec = encode(make, gradient()), make()
    for n in (0, 1, N - 1, N + 1):
        assert_refused(codec, payload, torch.ones(n))
    stranger = next(other() for other in CODECS.values() if other().codec_id != codec.codec_id)
    assert_refused(stranger, payload, torch.ones(N))
    assert_refused(codec, payload.float(), torch.ones(N))
    assert_refused(codec, payload.view(1, -1), torch.ones(N))


@every_codec
def test_a_cut_or_extended_payload_is_refused(name: str, make: Make) -> None:
    payload, codec = encode(make, gradient()), make()
    for length in (0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5, payload.numel() // 2, payload.numel() - 1):
        assert_refused(codec, payload[:length], torch.ones(N))
    for more in (1, 4, 8):
        assert_refused(codec, torch.cat([payload, torch.zeros(more, dtype=torch.uint8)]), torch.ones(N))


@every_codec
def test_forged_headers_are_refused(name: str, make: Make) -> None:
    payload, codec = encode(make, gradient()), make()
    header = read_header(payload, codec.codec_id)
    other_dtype = BFLOAT16 if header.dtype == FLOAT32 else FLOAT32
    forged = [(N, header.k + 1, header.dtype), (N, header.k - 1, header.dtype), (N, -1, header.dtype), (N, N + 1, header.dtype)]
    for n, k, dtype in [*forged, (-N, 0, header.dtype), (1 << 40, 1, header.dtype), (N, header.k, other_dtype), (N, header.k, 3)]:
        head = torch.frombuffer(bytearray(Header(codec.codec_id, n, k, dtype).pack()), dtype=torch.uint8)
        assert_refused(codec, torch.cat([head, payload[HEADER_BYTES:]]), torch.ones(N))


@every_codec
@given(data=st.binary(max_size=120))
@few_examples
def test_random_bytes_are_refused(name: str, make: Make, data: bytes) -> None:
    with pytest.raises(PayloadError):
        make().decode(torch.from_numpy(np.frombuffer(data, np.uint8).copy()))


@every_codec
@given(data=st.data())
@few_examples
def test_random_bytes_after_a_good_header_do_no_harm(name: str, make: Make, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 60))
    header = Header(make().codec_id, n, data.draw(st.integers(0, n)), data.draw(st.integers(0, 2)))
    payload = np.frombuffer(header.pack() + data.draw(st.binary(max_size=300)), np.uint8).copy()
    assert_refused_or_whole(make(), torch.from_numpy(payload), n)


@every_codec
@given(data=st.data())
@few_examples
def test_a_damaged_payload_does_no_harm(name: str, make: Make, data: st.DataObject) -> None:
    payload, codec = make().encode(gradient(n=90), RATIO, (60, 30)), make()
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, payload.numel() - 1))] = data.draw(st.integers(0, 255))
    kind = data.draw(st.sampled_from(["flipped", "cut", "extended"]))
    if kind == "cut":
        payload = payload[: data.draw(st.integers(0, payload.numel()))]
    elif kind == "extended":
        payload = torch.cat([payload, payload[: data.draw(st.integers(0, 40))]])
    assert_refused_or_whole(codec, payload, 90)


@pytest.mark.parametrize("name", ["topk", "topk-half", "randomk"])
def test_sparse_codecs_send_as_many_values_as_the_ratio_says(name: str) -> None:
    values = torch.arange(1.0, N + 1)
    for ratio in (0.001, 0.25, 0.7, 1.0):
        assert CODECS[name]().decode(CODECS[name]().encode(values, ratio)).count_nonzero() == kept(N, ratio)


def assert_refused(codec: Codec, payload: Tensor, out: Tensor) -> None:
    before = out.clone()
    with pytest.raises(PayloadError):
        codec.add_decoded(payload, out)
    assert torch.equal(out, before)


def assert_refused_or_whole(codec: Codec, payload: Tensor, n: int) -> None:
    out = torch.ones(n)
    try:
        codec.add_decoded(payload, out)
    except PayloadError:
        assert torch.equal(out, torch.ones(n))
    else:
        assert codec.decode(payload).shape == (n,)
