"""The frame of a payload: header and body, the tensors inside a flat one, and adding what was decoded to any tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression.codec import FLOAT32, HEADER_BYTES, Header, PayloadError, read_header
from workloads.compression.packing import packed_bytes

Floats = NDArray[np.float32]
WORD_BYTES = 4


def new_payload(header: Header, device: torch.device, *part_bytes: int) -> tuple[Tensor, list[Tensor]]:
    """Return a payload with its header written and its parts still to be filled."""
    payload = torch.empty(HEADER_BYTES + sum(part_bytes), dtype=torch.uint8, device=device)
    payload[:HEADER_BYTES] = torch.frombuffer(bytearray(header.pack()), dtype=torch.uint8)
    return payload, split(payload[HEADER_BYTES:], *part_bytes)


def open_payload(buffer: Tensor, codec_id: int, out: Tensor, dtype: int = FLOAT32) -> tuple[Header, Tensor]:
    """Return the header of a payload meant for `out`, and its body with words aligned on the device of `out`."""
    header = read_header(buffer, codec_id)
    if header.dtype != dtype:
        raise PayloadError(f"payload of codec {codec_id} with values of dtype {header.dtype}, not {dtype}")
    if header.n != out.numel():
        raise PayloadError(f"payload of {header.n} elements for a tensor of {out.numel()}")
    return header, aligned(buffer.to(out.device))[HEADER_BYTES:]


def open_dense(buffer: Tensor, codec_id: int, out: Tensor, dtype: int = FLOAT32) -> tuple[Header, Tensor]:
    """Open a payload that counts all its elements as sent."""
    header, body = open_payload(buffer, codec_id, out, dtype)
    if header.k != header.n:
        raise PayloadError(f"payload of codec {codec_id} claims to send {header.k} of {header.n} elements, not all")
    return header, body


def split(body: Tensor, *part_bytes: int) -> list[Tensor]:
    """Cut a body into its parts, which it must fill exactly."""
    if body.numel() != sum(part_bytes):
        raise PayloadError(f"a payload with a body of {sum(part_bytes)} bytes was expected, not {body.numel()}")
    return list(body.split(list(part_bytes)))


def tensor_sizes(n: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the tensors in a row of n elements, without empty ones."""
    if sizes and (min(sizes) < 0 or sum(sizes) != n):
        raise ValueError(f"the sizes of {len(sizes)} tensors sum to {sum(sizes)}, but there are {n} elements")
    return tuple(size for size in sizes or (n,) if size)


def read_sizes(body: Tensor, header: Header) -> list[int]:
    """Read the table of k int32 tensor sizes that a body begins with."""
    if body.numel() < 4 * header.k:
        raise PayloadError(f"a payload of {header.k} tensors ends within the table of their sizes")
    sizes: list[int] = body[: 4 * header.k].view(torch.int32).tolist()
    if min(sizes, default=1) < 1 or sum(sizes) != header.n:
        raise PayloadError(f"the tensor sizes in a payload sum to {sum(sizes)}, not to its {header.n} elements")
    return sizes


def segments(sizes: Sequence[int], bits: int) -> Iterator[tuple[slice, slice]]:
    """Yield where each tensor's elements lie, and where the bytes of its codes: each tensor begins a new byte."""
    element = byte = 0
    for size in sizes:
        yield slice(element, element + size), slice(byte, byte + packed_bytes(size, bits))
        element, byte = element + size, byte + packed_bytes(size, bits)


def code_bytes(sizes: Sequence[int], bits: int) -> int:
    """Return how many bytes the codes of tensors fill."""
    return sum(packed_bytes(size, bits) for size in sizes)


def add_values(out: Tensor, values: Tensor, scale: float) -> None:
    """Add `scale` times a row of values to a tensor of any float dtype and layout."""
    out.detach().add_(values.view(out.shape), alpha=scale)


def add_compiled(out: Tensor, kernel: Callable[[float, Floats], None], scale: float) -> None:
    """Let a compiled loop add to a tensor, by way of a row of float32 if it is none itself."""
    if out.dtype == torch.float32 and out.is_contiguous():
        kernel(scale, out.detach().view(-1).numpy())
    else:
        row = torch.zeros(out.numel())
        kernel(1.0, row.numpy())
        add_values(out, row, scale)


def aligned(buffer: Tensor) -> Tensor:
    """Return a buffer that begins at a whole word: a slice of a larger buffer may start anywhere."""
    return buffer.clone() if buffer.storage_offset() % WORD_BYTES or buffer.data_ptr() % WORD_BYTES else buffer
