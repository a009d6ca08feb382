"""Measure the codecs: python -m tests.bench_codecs. Every ratio is of two times of one run, in turns, one thread, medians."""

from __future__ import annotations

import multiprocessing
import re
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from workloads.compression.codec import Codec
from workloads.compression.threelc import ThreeLC
from workloads.compression.topk import TopK, kept

ELEMENTS = 11_000_000
TOPK_BARS = {0.1: 5.0, 0.01: 12.0, 0.001: 15.0}  # times torch.topk
ENCODE_TORCH_BAR, ENCODE_COPY_BAR, DECODE_COPY_BAR = 5.0, 0.10, 0.15  # 3LC: times plain torch, shares of memcpy's speed
MEMORY_BAR = 2.5  # extra bytes of an encoding over the gradient's
MEMORY_RATIOS = (0.1, 0.9)


@dataclass(frozen=True)
class Row:
    """One measured number and its bar."""

    name: str
    bar: float
    measured: float
    unit: str = "x"
    at_least: bool = True  # the bar is a minimum, else a maximum

    @property
    def met(self) -> bool:
        """Tell whether the bar is met."""
        return self.measured >= self.bar if self.at_least else self.measured <= self.bar

    def __str__(self) -> str:
        shown = [f"{value:.0%}" if self.unit == "%" else f"{value:.2f}{self.unit}" for value in (self.bar, self.measured)]
        return f"| {self.name} | {'>=' if self.at_least else '<='} {shown[0]} | {shown[1]} | {'met' if self.met else 'missed'} |"


def gradients() -> dict[str, Tensor]:
    """Return the data: plain normal numbers, and their cubes, whose few large values are like a gradient's."""
    normal = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(1))
    return {"gradient-like": normal**3 * 1e-3, "normal": normal}


def topk_rows(repeats: int = 7) -> list[Row]:
    """Compare exact top-k with torch.topk."""
    data = gradients()
    return [
        Row(f"top-k {ratio:g}, {name}: speed over `torch.topk`", bar, topk_speed(gradient, ratio, repeats))
        for name, gradient in data.items()
        for ratio, bar in TOPK_BARS.items()
    ]


def topk_speed(gradient: Tensor, ratio: float, repeats: int) -> float:
    """Return how much faster a whole exact encoding is than torch.topk of the magnitudes alone."""
    magnitudes, codec, k = gradient.abs(), TopK(), kept(gradient.numel(), ratio)
    ours, theirs = medians_s(repeats, lambda: codec.encode(gradient, ratio), lambda: torch.topk(magnitudes, k))
    return theirs / ours


def threelc_rows(repeats: int = 7) -> list[Row]:
    """Compare 3LC with its plain torch formulation and with copying the gradient."""
    rows = []
    for name, gradient in gradients().items():
        encoding, in_torch, decoding, copying = threelc_times_s(gradient, repeats)
        rows += [
            Row(f"3LC encode, {name}: speed over torch operations", ENCODE_TORCH_BAR, in_torch / encoding),
            Row(f"3LC encode, {name}: share of memcpy's speed", ENCODE_COPY_BAR, copying / encoding, "%"),
            Row(f"3LC decode, {name}: share of memcpy's speed", DECODE_COPY_BAR, copying / decoding, "%"),
        ]
    return rows


def threelc_times_s(gradient: Tensor, repeats: int) -> list[float]:
    """Return the times of encoding, of encoding in torch operations, of decoding, and of copying."""
    codec, plain, target = ThreeLC(), ThreeLC(force_torch=True), torch.zeros_like(gradient)
    payload = codec.encode(gradient)
    return medians_s(
        repeats,
        lambda: codec.encode(gradient),
        lambda: plain.encode(gradient),
        lambda: codec.add_decoded(payload, target),
        lambda: target.copy_(gradient),
    )


def memory_rows() -> list[Row]:
    """Measure how far an encoding raises the peak of resident memory, every one in a process of its own."""
    from workloads.compression.registry import CODECS

    context = multiprocessing.get_context("forkserver")  # children begin with clean memory, and torch imported once
    context.set_forkserver_preload(["workloads.compression.registry"])
    rows = []
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as children:
        for name in CODECS:
            largest = max(children.map(extra_memory, [name] * len(MEMORY_RATIOS), MEMORY_RATIOS))
            rows.append(
                Row(f"{name}: extra memory over the gradient's, the larger of ratios 0.1 and 0.9", MEMORY_BAR, largest, at_least=False)
            )
    return rows


def extra_memory(name: str, ratio: float) -> float:
    """Return the peak of extra resident memory of one encoding over the gradient's size."""
    from workloads.compression.registry import CODECS

    torch.set_num_threads(1)
    codec: Codec = CODECS[name]()
    gradient = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(1))
    codec.encode(gradient[:1000], ratio)  # whatever is set up once
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew at what is resident now
    before = _peak_bytes()
    payload = codec.encode(gradient, ratio)
    extra = _peak_bytes() - before
    return max(extra, payload.nbytes) / gradient.nbytes


def _peak_bytes() -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if match is None:
        raise OSError("/proc/self/status has no VmHWM line")
    return int(match[1]) * 1024


def medians_s(repeats: int, *actions: Callable[[], object]) -> list[float]:
    """Return the median time of each action; they take turns, so that a busy machine slows all of them alike."""
    times: list[list[float]] = [[] for _ in actions]
    for turn in range(repeats + 1):
        for action, taken in zip(actions, times, strict=True):
            start = time.perf_counter()
            action()
            if turn:  # the first is a warm-up
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for a while."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def section() -> str:
    """Measure everything and return a section of Markdown."""
    with one_thread():
        rows = topk_rows() + threelc_rows()
    rows += memory_rows()
    return f"""## How fast are the codecs, and what memory do they take?
{ELEMENTS:,} float32 numbers, one thread, all ratios from this run. Top-k is timed as a whole (selection and payload) against
`torch.topk` on magnitudes taken beforehand. Memory is what an encoding adds to the process's peak.

| measured | bar | this run | |
|---|---|---|---|
{chr(10).join(str(row) for row in rows)}
"""


def main() -> None:
    """Measure and print."""
    print(section())


if __name__ == "__main__":
    main()
