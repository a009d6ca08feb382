"""3LC (Lim, Andersen and Kaminsky 2019): three values a tensor, five to a byte, runs of zeros shortened.

Each tensor is scaled by itself: one maximum over all layers would silence most of them. Error feedback is not here: a memory keeps
what the payload leaves out. A tensor with NaN or infinities has M = NaN and decodes to NaN everywhere, unless it travels raw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workloads.compression import threelc_kernels, threelc_torch
from workloads.compression.codec import FLOAT32, HEADER_BYTES, Codec, Header, PayloadError, read_header
from workloads.compression.payload import aligned
from workloads.compression.selection import float32_row
from workloads.compression.threelc_kernels import RAW

ENTRY_BYTES = 12  # of a tensor in the table


@dataclass(frozen=True)
class Table:
    """What a payload says of its tensors, one entry each, in this order."""

    counts: NDArray[np.int32]  # elements
    lengths: NDArray[np.int32]  # bytes of the body, or RAW
    scales: NDArray[np.float32]  # M; 0 for raw tensors

    @property
    def nbytes(self) -> int:
        """Return the table's length in a payload."""
        return ENTRY_BYTES * self.counts.size

    @property
    def raw_bytes(self) -> int:
        """Return the length of all raw tensors."""
        return 4 * int(self.counts[self.lengths == RAW].sum())

    @property
    def body_bytes(self) -> int:
        """Return the length of all bodies."""
        return int(self.lengths[self.lengths != RAW].sum())


class ThreeLC(Codec):
    """Payload: header (k tensors), the table, raw tensors as float32, bodies of the others: quartic bytes with runs shortened."""

    codec_id = 3
    fixed_size = False

    def __init__(self, sparsity: float = 1.0, *, raw_below: int = 256, force_torch: bool = False) -> None:
        if not 1 <= np.float32(sparsity) < 2:
            raise ValueError(f"sparsity multiplier {sparsity} must be at least 1 and below 2")
        self._sparsity = np.float32(sparsity)
        self._raw_below = raw_below  # tensors of fewer elements travel as float32
        self._force_torch = force_torch

    def encode(self, flat: Tensor, ratio: float = 1.0, sizes: tuple[int, ...] = ()) -> Tensor:
        """Return the payload of all tensors."""
        row = float32_row(flat)
        table = _new_table(row.numel(), sizes, self._raw_below)
        if row.is_cpu and not self._force_torch:
            data = np.empty(table.raw_bytes + table.body_bytes, np.uint8)
            raw, bodies = data[: table.raw_bytes].view(np.float32), data[table.raw_bytes :]
            threelc_kernels.encode_tensors(row.numpy(), self._sparsity, table.counts, table.lengths, table.scales, raw, bodies)
            rest = torch.from_numpy(data[: table.raw_bytes + table.body_bytes])  # the lengths are now those after shortening
        else:
            rest = threelc_torch.encode_tensors(row, self._sparsity, table.counts, table.lengths, table.scales)
        head = bytearray(Header(self.codec_id, row.numel(), table.counts.size).pack())
        head += table.counts.tobytes() + table.lengths.tobytes() + table.scales.tobytes()
        return torch.cat([torch.frombuffer(head, dtype=torch.uint8).to(row.device), rest])

    def add_decoded(self, buffer: Tensor, out: Tensor, scale: float = 1.0) -> None:
        """Add `scale` times M times the quantised values of every tensor."""
        header = read_header(buffer, self.codec_id)
        if header.dtype != FLOAT32:
            raise PayloadError(f"payload values of dtype {header.dtype}; 3LC writes float32")
        if out.numel() != header.n:
            raise PayloadError(f"payload of {header.n} elements for a tensor of {out.numel()}")
        table = _read_table(header, buffer)
        buffer = aligned(buffer.to(out.device))
        raw, bodies = buffer[HEADER_BYTES + table.nbytes :].split([table.raw_bytes, table.body_bytes])
        raw = raw.view(torch.float32)
        compiled = out.is_cpu and out.dtype == torch.float32 and out.is_contiguous() and not self._force_torch
        if compiled:
            damaged = threelc_kernels.first_damaged(table.counts, table.lengths, bodies.numpy())
        else:
            damaged = threelc_torch.first_damaged(table.counts, table.lengths, bodies)
        if damaged >= 0:
            raise PayloadError(f"the body of tensor {damaged} does not expand to its {table.counts[damaged]} elements")
        factor = np.float32(scale)
        steps = factor * table.scales
        row = out.detach().view(-1)
        if compiled:
            threelc_kernels.add_tensors(table.counts, table.lengths, steps, factor, raw.numpy(), bodies.numpy(), row.numpy())
        else:
            threelc_torch.add_tensors(table.counts, table.lengths, steps, factor, raw, bodies, row)


def _new_table(n: int, sizes: tuple[int, ...], raw_below: int) -> Table:
    """Return the table of tensors to encode, with the longest their bodies can be; empty tensors are left out."""
    if any(size < 0 for size in sizes) or sum(sizes or (n,)) != n:
        raise ValueError(f"tensors of {sum(sizes)} elements in a gradient of {n}: `sizes` must add up to it")
    counts = np.array([size for size in sizes or (n,) if size > 0], np.int32)
    lengths = np.where(counts < raw_below, RAW, (counts + 4) // 5).astype(np.int32)
    return Table(counts, lengths, np.zeros(counts.size, np.float32))


def _read_table(header: Header, buffer: Tensor) -> Table:
    """Return a payload's table, checked against the header and the payload's length."""
    words = buffer[HEADER_BYTES : HEADER_BYTES + ENTRY_BYTES * header.k].cpu().numpy().copy()
    if words.size != ENTRY_BYTES * header.k:
        raise PayloadError(f"a payload of {buffer.numel()} bytes has no room for a table of {header.k} tensors")
    counts, lengths, scales = words.view(np.int32).reshape(3, header.k)
    table = Table(counts, lengths, scales.view(np.float32))
    if (counts < 1).any() or counts.sum(dtype=np.int64) != header.n:
        raise PayloadError(f"the payload's tensors do not make up {header.n} elements")
    if ((lengths != RAW) & ((lengths < 1) | (lengths > (counts + 4) // 5))).any():
        raise PayloadError("the payload has a tensor whose body is empty or longer than its elements need")
    if ((table.scales < 0) | np.isinf(table.scales)).any():
        raise PayloadError("the payload has a tensor with a negative or infinite scale")
    expected = HEADER_BYTES + table.nbytes + table.raw_bytes + table.body_bytes
    if buffer.numel() != expected:
        raise PayloadError(f"a payload of {buffer.numel()} bytes whose table speaks of {expected}")
    return table
