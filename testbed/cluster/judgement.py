"""Judge a run on real machines: its replicas must agree. Of the network nothing is claimed, so nothing can be wrong with it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from testbed.cluster.roster import Machine, alone
from testbed.emulation import wire
from testbed.emulation.judgement import Unjudgeable
from testbed.emulation.validity import replicas
from testbed.record import RunFolder


def judge(folder: RunFolder, machines: Sequence[Machine]) -> dict[str, Any]:
    """Compute what the manifest says of a finished run."""
    steps, workers = folder.table("steps"), folder.workers()
    if folder.measured_window() is None or steps.empty or len(workers) != len(machines):
        raise Unjudgeable("the workers ended without a complete record of a measured window")
    same = replicas(workers)
    compute_s = statistics.median(steps["compute_s"])
    quiet_s = statistics.median(worker["quiet_compute_s"] for worker in workers)
    return {
        "valid": same.ok,
        "invalid_reasons": [] if same.ok else [same.text],
        "checks": [same.to_json()],
        "notes": wire_notes(steps, workers, machines),
        "compute_inflation": compute_s / quiet_s if quiet_s else None,
        "workers": workers,
        "origin_mono_s": float(steps[steps["rank"] == 0]["mono_s"].min()),
    }


def wire_notes(steps: pd.DataFrame, workers: list[dict[str, Any]], machines: Sequence[Machine]) -> list[str]:
    """Compare the interfaces' counters with the payload: a note, as others may use them too.

    The least is the payload alone: cards that cut segments themselves may have their headers counted once for many.
    """
    counted, notes = alone(machines), []
    if len(counted) < len(machines):
        notes.append("bytes on the wire are not told apart where ranks share an interface")
    for rank in counted:
        mine, mtu = steps[steps["rank"] == rank], machines[rank].mtu or 0
        sent, received, counted_bytes = (float(mine[name].sum()) for name in ("bytes_sent", "bytes_received", "wire_bytes_sent"))
        _, most = wire.bounds(sent, received, workers[rank]["messages"], mtu)
        if not wire.SLACK[0] * sent <= counted_bytes <= wire.SLACK[1] * most:
            where = f"{machines[rank].interface} of {machines[rank].host}"
            expected = f"the payload of rank {rank} comes to {sent / 1e6:.1f} to {most / 1e6:.1f}"
            notes.append(f"{where} sent {counted_bytes / 1e6:.1f} MB where {expected}: others used it, or much was sent again")
    return notes
