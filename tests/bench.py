"""Measure emulator, controller, codecs, hooks, sweeps, containers and analysis, into docs/benchmarks.md: python -m tests.bench as root.

`make bench` does so. `python -m tests.bench controller hooks` measures these parts only and keeps the others. Ratios and times of one run
on one machine, never a pass or fail: the bars are in tests/fidelity.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from testbed import machine
from testbed.lock import MachineLock
from tests import (
    bench_analysis,
    bench_codecs,
    bench_containers,
    bench_controller,
    bench_dilation,
    bench_hooks,
    bench_sensing,
    bench_sweep,
    bench_telemetry,
)
from tests.emulation.scenarios import play, teardown_s

HEAD = "# Benchmarks\n\nWritten by `make bench`. One run, one machine: read the ratios.\n"
TARGET = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
CELLS = [(10e6, 1500), (20e6, 1500), (40e6, 1500), (100e6, 1500), (100e6, 9000), (200e6, 9000)]
NETWORKS = [("dumbbell", 0.001, 1500), ("dumbbell", 0.005, 1500), ("dumbbell", 0.025, 9000), ("star", 0.005, 1500), ("star", 0.005, 9000)]


def fidelity_rows() -> list[str]:
    """Overload a dumbbell's bottleneck through the switches at several rates."""
    rows = []
    for rate_bps, mtu in CELLS:
        seen = play("overloaded_dumbbell", workers=4, rate_bps=rate_bps, delay_s=0.005, mtu=mtu, access_bps=2 * rate_bps, seconds=3)
        unseen = seen["sent"] - seen["received"] - seen["lost"]
        rows.append(
            f"| {rate_bps / 1e6:.0f} | {mtu} | {seen['value']:.4f} | {seen['worst_second']:.4f} | {seen['coverage']:.2f} "
            f"| {seen['largest_backlog_bytes']} / {seen['queue_bytes']} | {seen['sent']} | {seen['dropped']} | {seen['lost']} | {unseen} |"
        )
        print(rows[-1], flush=True)
    return rows


def network_rows() -> list[str]:
    """Boot and verify networks of 8 hosts."""
    rows = []
    for kind, delay_s, mtu in NETWORKS:
        seen = play("verified", kind=kind, workers=8, rate_bps=40e6, delay_s=delay_s, mtu=mtu, access_bps=100e6)
        rate = max(abs(r["measured_bps"] / r["configured_bps"] - 1) for r in seen["rates"])
        rtt_ms = max(abs(r["measured_s"] - r["configured_s"]) for r in seen["rtts"]) * 1e3
        rows.append(
            f"| {kind} | {delay_s * 1e3:g} | {mtu} | {seen['boot_s']:.2f} | {seen['total_s']:.2f} | {rate:.2%} | {rtt_ms:.2f} "
            f"| {seen['calibration_s'] * 1e3:.2f} |"
        )
        print(rows[-1], flush=True)
    return rows


PARTS: dict[str, Callable[[], str]] = {
    "emulator": lambda: measure_emulator(machine.has_kernel_datapath()),
    "telemetry": bench_telemetry.section,
    "controller": bench_controller.section,
    "codecs": bench_codecs.section,
    "sensing": bench_sensing.section,
    "hooks": bench_hooks.section,
    "dilation": bench_dilation.section,
    "sweep": bench_sweep.section,
    "containers": bench_containers.section,
    "analysis": bench_analysis.section,
}
RUN_EXPERIMENTS = {"hooks", "dilation", "sweep", "containers"}  # which take the machine's lock themselves


def main() -> None:
    """Measure all parts, or those named on the command line, and write them; the others stay as they were."""
    machine.require_emulation()
    written = read_parts(TARGET.read_text() if TARGET.exists() else "")
    for name in sys.argv[1:] or PARTS:
        with nullcontext() if name in RUN_EXPERIMENTS else MachineLock(share=False, waiting=print):
            written[name] = f"{PARTS[name]().strip()}\n\n{provenance()}\n"
    sections = [f"<!-- {name} -->\n{written[name]}" for name in PARTS if name in written]
    TARGET.write_text("\n".join([HEAD, *sections]))
    print(f"written to {TARGET}")


def read_parts(text: str) -> dict[str, str]:
    """Split an earlier document into its parts, by the comment that stands before each."""
    _, *pieces = re.split(r"^<!-- (\w+) -->\n", text, flags=re.MULTILINE)
    return {name: body.strip() + "\n" for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def provenance() -> str:
    """Say when and where a part was measured."""
    datapath = "kernel" if machine.has_kernel_datapath() else "userspace"
    versions = f"kernel {platform.release()}, Open vSwitch {machine.versions().get('openvswitch')}, {datapath} datapath"
    return f"*Measured on {datetime.now(UTC):%Y-%m-%d} with {os.cpu_count()} cores, {versions}.*"


def measure_emulator(kernel: bool) -> str:
    """Measure rates, round-trip times and set-up times."""
    fidelity, networks, down_s = fidelity_rows(), network_rows(), teardown_s(workers=8)
    machine.forget_ceiling()
    ceilings = ", ".join(f"{machine.ceiling_bps(mtu, kernel) / 1e6:.0f} Mbit/s at MTU {mtu}" for mtu in (1500, 9000))
    delay = machine.trial("delay", kernel)
    return f"""## Does a backlogged bottleneck deliver its rate?
A dumbbell of 4 hosts, 5 ms one way; UDP from the left hosts to the right ones, 1.4 times the bottleneck's rate, 3 s, through both
switches and the delay element. *Delivered* is over the time the queue was backlogged; *dropped* is what the queue's own counter
says, *lost* what went into the switches and did not come out, *unseen* what is in neither count.

| Mbit/s | MTU | delivered / configured | worst second | coverage | largest backlog / limit (B) | sent | dropped | lost | unseen |
|---|---|---|---|---|---|---|---|---|---|
{chr(10).join(fidelity)}

## How long until a network of 8 hosts is up and proved?
All shaped directions measured; 40 Mbit/s, the dumbbell's access links 100 Mbit/s. The errors are the largest of all directions and pairs.

| kind | delay (ms) | MTU | Mininet and OVS (s) | up and verified (s) | rate error | RTT error (ms) | calibration (ms) |
|---|---|---|---|---|---|---|---|
{chr(10).join(networks)}

Torn down {down_s:.2f} s after `kill -9`.

## What the machine carries
The bottleneck of a dumbbell of 4 hosts is overloaded both ways by a ring of UDP flows, at rising rates; the last rate that is still
delivered makes the ceiling, counted in switch traversals of the whole ring: {ceilings}. A round trip of
{delay["configured_rtt_s"] * 1e3:.0f} ms takes {delay["excess_s"] * 1e3:+.2f} ms before calibration.
"""


if __name__ == "__main__":
    main()
