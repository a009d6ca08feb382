"""What a figure or table says about a run, as pure functions of its tables.

A value that cannot be had is NaN: never 0, never 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd

WINDOW_S = 1.0  # length of the windows that the bootstrap draws: longer than what correlates neighbouring steps
MIN_WINDOWS = 3
RESAMPLES = 2000
CONFIDENCE = 0.95
TARGET_FRACTION = 0.95  # of the uncompressed accuracy, when the experiment sets no target
# Student's t at 97.5 % for 1, 2, ... degrees of freedom; a bootstrap of three repeats would be far too narrow
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
MIN_ORDERED = 6  # repeats whose least and most cover the median with at least 95 %
PARTS = ("compute", "encode", "idle", "exchange", "decode")  # of a step, in the order they happen
NAN = float("nan")


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, and how it was had: over windows of one run it says nothing of how runs differ."""

    low: float = NAN
    high: float = NAN
    method: str = ""


def throughput_samples_s(steps: pd.DataFrame) -> float:
    """Return all workers' samples over worker 0's training clock."""
    per_step = _per_step(steps)
    return _ratio(per_step["samples"].sum(), per_step["step_s"].sum())


def throughput_interval(steps: pd.DataFrame, seed: int = 0) -> Interval:
    """Bootstrap the throughput of one run.

    1. Cut the run into windows of whole steps, each at least 1 s of training clock.
    2. Draw as many windows as there are, with replacement; their samples over their seconds is one throughput.
    3. Repeat, and take the central 95 %. Fewer than 3 windows say nothing.
    """
    windows = _windows(_per_step(steps))
    if len(windows) < MIN_WINDOWS:
        return Interval()
    samples, seconds = windows["samples"].to_numpy(), windows["step_s"].to_numpy()
    draws = np.random.default_rng(seed).integers(0, len(windows), size=(RESAMPLES, len(windows)))
    values = samples[draws].sum(axis=1) / seconds[draws].sum(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high), f"95 % bootstrap over {WINDOW_S:g} s windows")


def repeats_interval(values: list[float]) -> Interval:
    """Return Student's interval of the mean over repeats; two repeats at least."""
    count = len(values)
    if count < 2:
        return Interval()
    t = T_975[count - 2] if count - 2 < len(T_975) else 1.96 + 2.5 / (count - 1)
    middle, half = float(np.mean(values)), t * float(np.std(values, ddof=1)) / count**0.5
    return Interval(max(0.0, middle - half), middle + half, f"95 % Student t over {count} repeats")


def median_interval(values: list[float]) -> Interval:
    """Return a 95 % interval of the median over repeats.

    From 6 repeats on it is had from their order alone: the k-th least and the k-th most, with the largest k that still covers 95 %.
    Fewer cannot cover that much; then it is Student's interval of the mean, which always holds the median too.
    """
    count = len(values)
    if count < MIN_ORDERED:
        return repeats_interval(values)
    ordered, tail, place = sorted(values), 0.5**count, 0
    while tail + comb(count, place + 1) * 0.5**count <= (1 - CONFIDENCE) / 2:
        place += 1
        tail += comb(count, place) * 0.5**count
    return Interval(ordered[place], ordered[count - 1 - place], f"95 % of the median over {count} repeats")


def step_count(steps: pd.DataFrame) -> int:
    """Return how many steps worker 0 finished."""
    return int(_worker0(steps)["step"].nunique())


def has_adapted(steps: pd.DataFrame) -> bool:
    """Tell whether the ratio kept moving during the run (by over 1 %, at least thrice), or the policy believed something about the network.

    A scheme that begins dense and then stays at its ratio, as PowerSGD does, moves once. An adaptive scheme need not move in every run:
    whether a scheme is one, `adaptive` tells.
    """
    ratio = _worker0(steps).sort_values("step")["ratio"].dropna()
    moves = int((ratio.diff().abs() > 0.01 * ratio.shift()).sum())
    return moves >= 3 or bool(steps[["btlbw_bps", "congested"]].notna().any(axis=None))


def mean_step_s(steps: pd.DataFrame) -> float:
    """Return the mean step time of worker 0, whose clock is the training clock."""
    return _mean(_worker0(steps)["step_s"])


def median_part_s(steps: pd.DataFrame, part: str) -> float:
    """Return the median of one part of the step (`compute`, `encode`, `exchange`, `decode`) over steps and workers."""
    return float(steps[f"{part}_s"].median()) if len(steps) else NAN


def idle_s(steps: pd.DataFrame) -> pd.Series:
    """Return, of each worker and step, how much of its exchange went by before the last worker was ready to exchange.

    Ready is a worker when its own step has lasted as long as its compute and encoding took. All workers' clocks are one clock. The
    optimiser is in the compute though it comes after the exchange: docs/results.md says by how much that may be off.
    """
    ready_s = steps["t_s"] + steps["compute_s"] + steps["encode_s"]
    waiting_s = ready_s.groupby(steps["step"]).transform("max") - ready_s
    return waiting_s.clip(lower=0.0, upper=steps["exchange_s"])


def breakdown_s(steps: pd.DataFrame) -> dict[str, float]:
    """Return the mean of each part over steps and workers; they add up to the mean step. What is idle is not in the exchange."""
    means = {part: _mean(steps[f"{part}_s"]) for part in PARTS if part != "idle"}
    means["idle"] = _mean(idle_s(steps))
    means["exchange"] -= means["idle"]
    return {part: means[part] for part in PARTS}


def samples_per_step(steps: pd.DataFrame) -> float:
    """Return how many samples all workers together train on in a step."""
    return _mean(_per_step(steps)["samples"])


def bytes_per_step(steps: pd.DataFrame) -> float:
    """Return the payload one worker sends in a step, mean over steps and workers."""
    return _mean(steps["bytes_sent"])


def wire_bytes_per_step(steps: pd.DataFrame) -> float:
    """Return what one worker's interface sends in a step: headers, ACKs and retransmissions included."""
    return _mean(steps["wire_bytes_sent"])


def bytes_sent(steps: pd.DataFrame) -> float:
    """Return the payload one worker sent in all of the run, mean over workers."""
    return _mean(steps.groupby("rank")["bytes_sent"].sum(min_count=1))


def compression_ratio(steps: pd.DataFrame, workers: int) -> float:
    """Return how many times fewer bytes are sent than by an uncompressed ring all-reduce, 2(N-1)/N x gradient."""
    dense = 2 * (workers - 1) / workers * _mean(steps["dense_bytes"]) if workers > 0 else NAN
    return _ratio(dense, bytes_per_step(steps)) or NAN


def background_bps(background: pd.DataFrame, steps: pd.DataFrame) -> float:
    """Return the mean goodput of all background traffic from worker 0's first measured step to its last; NaN if there was none."""
    clock = _worker0(steps)
    if background.empty or clock.empty:
        return NAN
    start_s, end_s = clock["t_s"].min(), (clock["t_s"] + clock["step_s"]).max()
    begun_s, ended_s = background["t_s"], background["t_s"] + background["seconds"]
    within_s = (ended_s.clip(upper=end_s) - begun_s.clip(lower=start_s)).clip(lower=0.0)
    received_bits = 8 * (background["received_bytes"] * within_s / background["seconds"]).sum()
    return _ratio(received_bits, end_s - start_s)


def final_accuracy(evals: pd.DataFrame) -> float:
    """Return the accuracy on the full test set at the end; NaN if the run did not get there."""
    final = evals.loc[evals["final"], "accuracy"].dropna()
    return float(final.iloc[-1]) if len(final) else NAN


def target_accuracy(asked: float | None, none_final: list[float]) -> float:
    """Return the accuracy to reach: the experiment's, else 0.95 of the best that scheme `none` ended with in the same cell."""
    if asked is not None:
        return asked
    known = [value for value in none_final if not np.isnan(value)]
    return TARGET_FRACTION * max(known) if known else NAN


def time_to_accuracy_s(evals: pd.DataFrame, target: float) -> float:
    """Return the training clock at the first evaluation at or above the target; nothing is interpolated."""
    reached = evals.loc[evals["accuracy"] >= target, "train_s"].dropna()
    return float(reached.min()) if len(reached) else NAN


def median_time_s(times_s: pd.Series) -> float:
    """Return the median of runs' times to an accuracy; one that did not get there (NaN) counts as later than any that did.

    NaN where half of them or more did not: the median of those that did would be one of the lucky.
    """
    middle_s = float(times_s.fillna(np.inf).median())
    return middle_s if np.isfinite(middle_s) else NAN


def downsample_max(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], bins: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Keep the largest y of each of `bins` equal stretches of x, where it was, so that no spike is lost."""
    if len(x) <= bins:
        return x, y
    edges = np.linspace(x[0], x[-1], bins + 1)[1:-1]
    places = pd.Series(y).groupby(np.searchsorted(edges, x, side="right")).idxmax().to_numpy()
    return x[places], y[places]


def _worker0(steps: pd.DataFrame) -> pd.DataFrame:
    return steps[steps["rank"] == 0].sort_values("step")


def _per_step(steps: pd.DataFrame) -> pd.DataFrame:
    """Return, for each step worker 0 finished, its time and the samples of all workers."""
    clock = _worker0(steps).set_index("step")[["step_s"]]
    clock["samples"] = steps.groupby("step")["samples"].sum()
    return clock.dropna()


def _windows(per_step: pd.DataFrame) -> pd.DataFrame:
    """Sum whole steps into windows of at least WINDOW_S; a shorter rest joins the last window."""
    labels: list[int] = []
    label, filled = 0, 0.0
    for step_s in per_step["step_s"]:
        if filled >= WINDOW_S:
            label, filled = label + 1, 0.0
        labels.append(label)
        filled += step_s
    if label and filled < WINDOW_S:
        labels = [min(each, label - 1) for each in labels]
    return per_step.groupby(np.array(labels, dtype=int)).sum()


def _mean(values: pd.Series) -> float:
    return float(values.mean()) if values.notna().any() else NAN


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else NAN
