"""3LC in plain torch operations, for devices that the compiled loops cannot reach: the same bytes, the same sums."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.threelc_kernels import DIGITS, FIRST_RUN, FIVE_ZEROS, LONGEST_RUN, RAW, RUN_OFFSET, scale_of


def encode_tensors(
    row: Tensor, sparsity: np.float32, counts: NDArray[np.int32], lengths: NDArray[np.int32], scales: NDArray[np.float32]
) -> Tensor:
    """Return the raw tensors and the bodies of the others, as bytes; fill scales and lengths."""
    raw, bodies = [row[:0].view(torch.uint8)], []
    for t, tensor in enumerate(row.split(counts.tolist())):
        if lengths[t] == RAW:
            raw.append(tensor.view(torch.uint8))
            continue
        scales[t] = scale_of(np.float32(tensor.abs().max().item()), sparsity)
        bodies.append(shorten_runs(pack(quantise(tensor, float(scales[t])))))
        lengths[t] = bodies[-1].numel()
    return torch.cat(raw + bodies)


def quantise(tensor: Tensor, scale: float) -> Tensor:
    """Return round_half_even(tensor / scale), or zeros if the scale is 0 or NaN."""
    if not scale > 0:
        return torch.zeros_like(tensor)
    # the scale as a tensor on the device: CUDA multiplies by the reciprocal of a plain number, which rounds differently
    return (tensor / torch.tensor(scale, device=tensor.device)).round_()


def pack(quantised: Tensor) -> Tensor:
    """Return the quartic bytes of values in {-1, 0, 1}: byte j holds element j of five contiguous parts."""
    length = (quantised.numel() + 4) // 5
    digits = torch.zeros(5 * length, dtype=torch.uint8, device=quantised.device)
    digits[: quantised.numel()] = quantised + 1
    first, second, third, fourth, fifth = digits.view(5, length)
    return 81 * first + 27 * second + 9 * third + 3 * fourth + fifth


def shorten_runs(data: Tensor) -> Tensor:
    """Return quartic bytes with runs of FIVE_ZEROS replaced."""
    values, runs = torch.unique_consecutive(data, return_counts=True)
    is_zeros = values == FIVE_ZEROS
    rest = runs % LONGEST_RUN
    # any run becomes one byte, so many times; a run of zeros also a last byte that stands for the rest
    repeated = torch.where(is_zeros, RUN_OFFSET + LONGEST_RUN, values)
    times = torch.where(is_zeros, runs // LONGEST_RUN, runs)
    last = torch.where(rest == 1, FIVE_ZEROS, RUN_OFFSET + rest).to(torch.uint8)
    return torch.stack([repeated, last], 1).view(-1).repeat_interleave(torch.stack([times, is_zeros & (rest > 0)], 1).view(-1))


def first_damaged(counts: NDArray[np.int32], lengths: NDArray[np.int32], bodies: Tensor) -> int:
    """Return the first tensor whose body does not expand to its elements, or -1."""
    tensors = np.flatnonzero(lengths != RAW)
    for t, body in zip(tensors, bodies.split(lengths[tensors].tolist()), strict=True):
        if int(_repeats(body).sum()) != (counts[t] + 4) // 5:
            return int(t)
    return -1


def add_tensors(
    counts: NDArray[np.int32],
    lengths: NDArray[np.int32],
    steps: NDArray[np.float32],
    scale: np.float32,
    raw: Tensor,
    bodies: Tensor,
    out: Tensor,
) -> None:
    """Add a checked payload; `steps` are the tensors' M times `scale`."""
    raw_tensors = iter(raw.split(counts[lengths == RAW].tolist()))
    body_tensors = iter(bodies.split(lengths[lengths != RAW].tolist()))
    for tensor, length, step in zip(out.split(counts.tolist()), lengths, steps, strict=True):
        if length == RAW:
            tensor += (float(scale) * next(raw_tensors)).to(out.dtype)
        else:
            _add_body(next(body_tensors), float(step), tensor)


def _add_body(body: Tensor, step: float, out: Tensor) -> None:
    """Add `step` times the ternary values of a checked body."""
    levels = torch.tensor([-step, step if step != step else 0.0, step], device=out.device)  # NaN is for every element
    table = levels[torch.from_numpy(DIGITS).to(out.device, torch.int64) + 1]
    data = torch.where(body >= FIRST_RUN, FIVE_ZEROS, body).repeat_interleave(_repeats(body))
    for part, piece in enumerate(out.split(data.numel())):
        piece += table[data[: piece.numel()].to(torch.int64), part].to(out.dtype)


def _repeats(body: Tensor) -> Tensor:
    """Return how many quartic bytes each byte of a body stands for."""
    return torch.where(body >= FIRST_RUN, body.to(torch.int64) - RUN_OFFSET, 1)
