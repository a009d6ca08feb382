"""Traffic that competed with the workers', and what it was left with: how much it got, of the link and beside the training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis import metrics_time
from analysis.load import Run, dig
from analysis.metrics import NAN
from analysis.queues import Direction, training_samples

COLUMNS = ["t_s", "seconds", "source", "target", "protocol", "flows", "bps"]
NONE = pd.DataFrame({name: pd.Series(dtype=float) for name in COLUMNS})
PAUSE_S = 1.5  # a longer silence between two intervals is a pause
ETHERNET_BYTES = 14  # before each packet
UDP_HEADERS_BYTES = 28  # in each packet: 20 of IP, 8 of UDP
TCP_HEADERS_BYTES = 52  # 20 of IP, 32 of TCP with its timestamps


@dataclass(frozen=True)
class Fairness:
    """What background traffic got while it was on; NaN where there was none or it met no bottleneck."""

    share: float = NAN  # of the tightest bottleneck's rate, by what was received: without headers
    jain: float = NAN  # Jain's index of training and background on the wire: 1 if both got the same, 0.5 if one got everything


def read(run: Run) -> pd.DataFrame:
    """Return the run's background intervals within its training, one row an interval; none where it had no such traffic."""
    if run.background.empty:
        return NONE
    frame = run.background.rename(columns={"goodput_bps": "bps"})[COLUMNS].sort_values("t_s", kind="stable")
    inside = (frame["t_s"] + frame["seconds"] > 0) & (frame["t_s"] < metrics_time.end_s(run.steps))
    return frame[inside & frame["bps"].notna()].reset_index(drop=True)


def periods(intervals: pd.DataFrame) -> list[tuple[float, float, str]]:
    """Return when there was background traffic: from, to, and who sent to whom; pauses of over a second part two periods."""
    found: list[tuple[float, float, str]] = []
    numbered = intervals.assign(flows=intervals["flows"].fillna(0).astype(int))
    for _, rows in numbered.groupby(["source", "target", "flows"], sort=False):
        flows, way = int(rows["flows"].iloc[0]), f"{rows['source'].iloc[0]} → {rows['target'].iloc[0]}"
        words = f"{flows} flow{'s' * (flows > 1)} {way}" if flows else way
        starts, ends = rows["t_s"].to_numpy(), (rows["t_s"] + rows["seconds"]).to_numpy()
        cuts = np.flatnonzero(starts[1:] > ends[:-1] + PAUSE_S) + 1
        for part in np.split(np.arange(len(rows)), cuts):
            found.append((float(starts[part[0]]), float(ends[part[-1]]), words))
    return sorted(found)


def received_bps(intervals: pd.DataFrame, edges_s: metrics_time.Numbers, rate: str = "bps") -> metrics_time.Numbers:
    """Return what all background flows together received in each window, by this column; NaN in windows without any."""
    received, covered = np.zeros(len(edges_s) - 1), np.zeros(len(edges_s) - 1)
    for start_s, seconds, bps in intervals[["t_s", "seconds", rate]].to_numpy(dtype=float):
        share = np.clip(np.minimum(edges_s[1:], start_s + seconds) - np.maximum(edges_s[:-1], start_s), 0.0, None)
        received += bps * share
        covered += share
    return np.where(covered > 0, received / np.diff(edges_s), NAN)


def over(run: Run, intervals: pd.DataFrame, way: Direction) -> pd.DataFrame:
    """Return the intervals of flows that cross one direction of a link, as the manifest's paths say."""
    paths = {(path[0], path[-1]): set(pairwise(path)) for path in dig(run.manifest, "paths") or [] if path}
    ends = zip(intervals["source"], intervals["target"], strict=True)
    return intervals[[(way.source, way.target) in paths.get(pair, ()) for pair in ends]]


def fairness(run: Run) -> Fairness:
    """Return how background traffic fared beside the training, on the bottleneck that left it least."""
    intervals = read(run)
    if intervals.empty:
        return Fairness()
    intervals["wire_bps"] = intervals["bps"] * _wire_bits_per_payload_bit(run, intervals)
    found = [Fairness()]
    for keys, samples in training_samples(run).groupby(["link", "source", "target"]):
        found.append(_on(samples, over(run, intervals, Direction(*map(str, keys)))))
    return min(found, key=lambda one: one.share if one.share >= 0 else math.inf)


def _wire_bits_per_payload_bit(run: Run, intervals: pd.DataFrame) -> metrics_time.Numbers:
    """Return how many L2 bits each bit of payload took that an interval's flows received; NaN without an MTU in the manifest.

    Frames are taken for full ones. Left out, and so counted with the training: retransmissions (what crossed the bottleneck and was
    lost later, or came twice) and the acknowledgements of flows the other way.
    """
    mtu = dig(run.manifest, "network", "mtu")
    headers_bytes = np.where(intervals["protocol"] == "udp", UDP_HEADERS_BYTES, TCP_HEADERS_BYTES)
    return (mtu + ETHERNET_BYTES) / (mtu - headers_bytes) if isinstance(mtu, int) else np.full(len(intervals), NAN)


def _on(samples: pd.DataFrame, intervals: pd.DataFrame) -> Fairness:
    """Return the share and Jain's index on one direction, over the time in which these intervals were on."""
    marks = np.unique(np.concatenate([intervals["t_s"], intervals["t_s"] + intervals["seconds"]]))
    marks = marks[(marks >= samples["t_s"].min()) & (marks <= samples["t_s"].max())]
    if len(marks) < 2:
        return Fairness()
    lasts = np.diff(marks)
    background, wire_bps = received_bps(intervals, marks), received_bps(intervals, marks, "wire_bps")
    all_bps = metrics_time.delivered_bps(samples, marks)
    times, rates = metrics_time.configured_bps(samples)
    rate = rates[np.clip(np.searchsorted(times, marks[:-1], side="right") - 1, 0, None)]
    on = ~np.isnan(background) & ~np.isnan(all_bps)
    if not on.any():
        return Fairness()
    got, took, sent, offered = (float((values[on] * lasts[on]).sum()) for values in (background, wire_bps, all_bps, rate))
    rest = max(0.0, sent - took)
    jain = (took + rest) ** 2 / (2 * (took**2 + rest**2)) if took + rest > 0 else NAN
    return Fairness(share=got / offered if offered > 0 else NAN, jain=jain)
