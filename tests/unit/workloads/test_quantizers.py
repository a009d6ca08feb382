"""What is particular to each quantizer and to random-k; what all codecs promise is in test_codec_contract."""

import numpy as np
import pytest
import torch
from torch import Tensor

from workloads.compression.codec import HEADER_BYTES, Codec, PayloadError
from workloads.compression.dense import Dense
from workloads.compression.natural import Natural
from workloads.compression.onebit import OneBit
from workloads.compression.packing import largest_code, pack, pack_row, unpack, unpack_row
from workloads.compression.qsgd import QSGD
from workloads.compression.randomk import RandomK, draw_distinct
from workloads.compression.randomness import uniform
from workloads.compression.terngrad import TernGrad

NOT_FINITE = (torch.nan, torch.inf, -torch.inf)
both_paths = pytest.mark.parametrize("force_torch", [False, True], ids=["compiled", "torch"])


def trip(codec: Codec, values: Tensor, sizes: tuple[int, ...] = ()) -> Tensor:
    return codec.decode(codec.encode(values, 1.0, sizes))


def forge(payload: Tensor, at: int, *values: int | float, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return a payload with other values at an offset into its body."""
    payload = payload.clone()
    body = torch.tensor(values, dtype=dtype).view(torch.uint8)
    payload[HEADER_BYTES + at : HEADER_BYTES + at + body.numel()] = body
    return payload


@pytest.mark.parametrize(
    ("codec", "body_bytes"),
    [
        (Dense(), 4 * 1030),
        (Dense(torch.float16), 2 * 1030),
        (Dense(torch.bfloat16), 2 * 1030),
        (RandomK(), 8 + 4 * 103),
        (QSGD(), 4 + 3 * 4 + 1030),
        (QSGD(7), 4 + 3 * 4 + 515),
        (QSGD(1), 4 + 3 * 4 + 258),
        (TernGrad(), 2 * 8 + 250 + 8),
        (OneBit(), 2 * 12 + 125 + 4),
        (Natural(), 1030 + 129),
    ],
)
def test_payloads_are_as_long_as_the_formats_say(codec: Codec, body_bytes: int) -> None:
    assert codec.encode(torch.randn(1030), 0.1, (1000, 30)).numel() == HEADER_BYTES + body_bytes


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_both_packings_are_the_same_and_reversible(bits: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(1).integers(0, 1 << bits, 64).astype(np.uint8))
    packed = pack(codes, bits)
    compiled, unpacked = np.empty(8 * bits, np.uint8), np.empty(64, np.uint8)
    pack_row(codes.numpy(), bits, compiled)
    unpack_row(compiled, bits, unpacked)
    assert np.array_equal(packed.numpy(), compiled) and np.array_equal(unpacked, codes.numpy())
    assert torch.equal(unpack(packed, bits, 64), codes)
    assert largest_code(compiled, bits) == codes.max()


def test_random_numbers_of_a_key_are_spread_evenly_and_unrelated() -> None:
    draws = np.array([[uniform(np.uint64(key), i) for i in range(4096)] for key in (1, 2)])
    assert np.abs(np.histogram(draws[0], 16, (0, 1))[0] - 256).max() < 6 * 16
    assert abs(np.corrcoef(draws[0], draws[1])[0, 1]) < 6 / 64
    assert abs(np.corrcoef(draws[0, 1:], draws[0, :-1])[0, 1]) < 6 / 64


def test_half_precision_saturates_finite_values_but_not_infinities() -> None:
    values = torch.tensor([65504.0, 65519.0, 65520.0, -1e30, torch.inf, -torch.inf, torch.nan, 1.0])
    decoded = trip(Dense(torch.float16), values)
    assert decoded[:6].tolist() == [65504.0, 65504.0, 65504.0, -65504.0, torch.inf, -torch.inf]
    assert decoded[6].isnan() and decoded[7] == 1.0


def test_bfloat16_rounds_to_nearest_even() -> None:
    values = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3.4e38])
    assert trip(Dense(torch.bfloat16), values).tolist() == [1.0, 1 + 2.0**-6, 1 + 2.0**-7, torch.finfo(torch.bfloat16).max]


def test_dense_refuses_other_dtypes() -> None:
    with pytest.raises(ValueError, match="float64"):
        Dense(torch.float64)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (10, 3), (10, 9), (64, 64), (65, 32), (1000, 1), (4096, 4000), (0, 0)])
def test_drawn_indices_are_distinct_ascending_and_within_range(n: int, k: int) -> None:
    for key in range(50):
        indices = np.empty(k, np.int32)
        draw_distinct(np.uint64(key), n, indices)
        assert (np.diff(indices) > 0).all() and (indices >= 0).all() and (indices < n).all()


@pytest.mark.parametrize("k", [3, 9])
def test_every_index_is_drawn_as_often_as_any_other(k: int) -> None:
    n, draws = 11, 20_000
    counts = np.zeros(n)
    for key in range(draws):
        indices = np.empty(k, np.int32)
        draw_distinct(np.uint64(key), n, indices)
        counts[indices] += 1
    share = k / n
    assert np.abs(counts - share * draws).max() < 5 * (draws * share * (1 - share)) ** 0.5


def test_random_k_draws_the_same_on_every_device() -> None:
    values = torch.randn(1000)
    assert torch.equal(RandomK().encode(values, 0.1), RandomK(force_torch=True).encode(values, 0.1))


@both_paths
def test_random_k_tells_of_a_value_it_did_not_draw_that_is_not_finite(force_torch: bool) -> None:
    values = torch.zeros(1000)
    values[500] = torch.inf
    assert RandomK(force_torch=force_torch).decode(RandomK(force_torch=force_torch).encode(values, 0.01)).isnan().sum() == 10


@pytest.mark.parametrize("make", [RandomK, QSGD, TernGrad, OneBit, Natural])
@both_paths
def test_decoding_adds_to_a_tensor_of_any_layout(make: type[Codec], force_torch: bool) -> None:
    codec = make(force_torch=force_torch)  # type: ignore[call-arg]
    payload = codec.encode(torch.randn(24))
    out = torch.ones(4, 6).t()
    codec.add_decoded(payload, out)
    assert torch.equal(out, 1 + codec.decode(payload).view(6, 4))


@both_paths
@pytest.mark.parametrize("levels", [1, 2, 7, 8, 127])
def test_qsgd_rounds_to_neighbouring_levels_of_the_norm(levels: int, force_torch: bool) -> None:
    values = torch.randn(1300)
    decoded = QSGD().decode(QSGD(levels, force_torch=force_torch).encode(values))
    for part, rounded in zip(values.split(512), decoded.split(512), strict=True):
        steps = rounded / (part.norm() / levels)
        assert torch.allclose(steps, steps.round(), atol=1e-4)
        assert ((rounded - part).abs() <= part.norm() / levels * 1.0001).all()


@both_paths
@pytest.mark.parametrize("magnitude", [3e38, 1e30, 1e-30, 1e-40])
def test_extreme_but_finite_values_survive_the_quantizers(magnitude: float, force_torch: bool) -> None:
    values = torch.full((600,), magnitude)
    for codec in (QSGD(force_torch=force_torch), TernGrad(force_torch=force_torch), OneBit(force_torch=force_torch)):
        decoded = trip(codec, values)
        assert decoded.isfinite().all()
        assert abs(decoded.double().mean() / magnitude - 1) < 0.15, codec


@both_paths
def test_a_lone_value_is_its_buckets_norm_and_exact(force_torch: bool) -> None:
    values = torch.zeros(512)
    values[3] = -0.1
    torch.testing.assert_close(trip(QSGD(force_torch=force_torch), values), values, rtol=1e-6, atol=0)


@both_paths
@pytest.mark.parametrize("bad", NOT_FINITE)
def test_not_finite_values_spoil_their_own_bucket_or_tensor_only(bad: float, force_torch: bool) -> None:
    values = torch.randn(1024)
    values[700] = bad
    for codec in (QSGD(force_torch=force_torch), TernGrad(force_torch=force_torch), OneBit(force_torch=force_torch)):
        decoded = trip(codec, values, (512, 512))
        assert decoded[:512].isfinite().all() and decoded[512:].isnan().all(), codec


@both_paths
@pytest.mark.parametrize("levels", [1, 5, 127])
def test_qsgd_refuses_codes_and_levels_that_do_not_exist(levels: int, force_torch: bool) -> None:
    codec = QSGD(levels, force_torch=force_torch)
    payload = codec.encode(torch.randn(100))
    for forged in (forge(payload, 8, 255), forge(payload, 0, 0, dtype=torch.int32), forge(payload, 0, 128, dtype=torch.int32)):
        with pytest.raises(PayloadError):
            codec.decode(forged)


@pytest.mark.parametrize("levels", [0, -1, 128])
def test_qsgd_has_1_to_127_levels(levels: int) -> None:
    with pytest.raises(ValueError, match="levels"):
        QSGD(levels)


@both_paths
def test_terngrad_scales_every_tensor_by_its_own_largest_value(force_torch: bool) -> None:
    values = torch.cat([torch.randn(500), 100 * torch.randn(300)])
    decoded = trip(TernGrad(0.0, force_torch=force_torch), values, (500, 300))
    for part, ternary in zip(values.split([500, 300]), decoded.split([500, 300]), strict=True):
        assert set((ternary / part.abs().max()).tolist()) == {-1.0, 0.0, 1.0}
        assert (ternary * part >= 0).all() and ternary[part.abs().argmax()] != 0


@both_paths
def test_terngrad_clips_outliers_and_nothing_else(force_torch: bool) -> None:
    values = torch.ones(1000)
    assert torch.equal(trip(TernGrad(force_torch=force_torch), values), values)
    values[0] = 1000.0
    sigma = values.norm() / 1000**0.5
    torch.testing.assert_close(trip(TernGrad(2.5, force_torch=force_torch), values)[0], 2.5 * sigma, rtol=1e-5, atol=0)
    assert trip(TernGrad(0.0, force_torch=force_torch), values)[0] == 1000.0
    with pytest.raises(ValueError, match="deviations"):
        TernGrad(-1.0)


@both_paths
def test_terngrad_refuses_the_fourth_code(force_torch: bool) -> None:
    codec = TernGrad(force_torch=force_torch)
    with pytest.raises(PayloadError, match="code 3"):
        codec.decode(forge(codec.encode(torch.randn(100)), 8, 0b11))


@both_paths
def test_one_bit_sends_the_means_of_either_sign(force_torch: bool) -> None:
    values = torch.tensor([1.0, 3.0, -2.0, -4.0, 0.0, 0.5, 1.5])
    decoded = trip(OneBit(force_torch=force_torch), values, (5, 2))
    torch.testing.assert_close(decoded, torch.tensor([4 / 3, 4 / 3, -3.0, -3.0, 4 / 3, 1.0, 1.0]))


def test_both_paths_of_one_bit_write_the_same() -> None:
    values, sizes = torch.randn(2000), (1500, 499, 1)
    compiled, torch_made = (OneBit(force_torch=force).encode(values, 1.0, sizes) for force in (False, True))
    assert torch.equal(compiled[-260:], torch_made[-260:])  # the means may differ in the last bit
    torch.testing.assert_close(OneBit().decode(compiled), OneBit().decode(torch_made))


@pytest.mark.parametrize("make", [TernGrad, OneBit])
@both_paths
def test_tables_of_sizes_that_do_not_add_up_are_refused(make: type[Codec], force_torch: bool) -> None:
    codec = make(force_torch=force_torch)  # type: ignore[call-arg]
    payload = codec.encode(torch.randn(64), 1.0, (32, 32))
    for table in ((32, 40), (64, 0), (96, -32), (2**31 - 1, 2**31 - 1)):
        with pytest.raises(PayloadError):
            codec.decode(forge(payload, 0, *table, dtype=torch.int32))
    for sizes in ((32,), (64, 1), (96, -32)):
        with pytest.raises(ValueError, match="sizes"):
            codec.encode(torch.randn(64), 1.0, sizes)


@both_paths
def test_natural_compression_sends_powers_of_two(force_torch: bool) -> None:
    values = torch.randn(5000) ** 5
    mantissas, _ = torch.frexp(trip(Natural(force_torch=force_torch), values))
    assert set(mantissas.abs().tolist()) == {0.5}
    exact = torch.tensor([0.0, 1.0, -2.0, 0.125, 2.0**127, -(2.0**-126)])
    assert torch.equal(trip(Natural(force_torch=force_torch), exact), exact)


@both_paths
def test_natural_compression_rounds_the_largest_numbers_down_and_keeps_infinities(force_torch: bool) -> None:
    values = torch.tensor([3e38, -3e38, torch.inf, -torch.inf])
    assert trip(Natural(force_torch=force_torch), values).tolist() == [2.0**127, -(2.0**127), torch.inf, -torch.inf]


@both_paths
def test_natural_compression_is_right_on_average_even_below_normal_numbers(force_torch: bool) -> None:
    least = 2.0**-126
    rounded = trip(Natural(force_torch=force_torch), torch.full((40_000,), least / 4))
    assert set((rounded / least).tolist()) == {0.0, 1.0}
    assert abs((rounded / least).mean() - 0.25) < 0.02
