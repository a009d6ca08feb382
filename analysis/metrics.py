"""What a figure or table says about a run, as pure functions of its tables.

A value that cannot be had is NaN: never 0, never 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd

WINDOW_S = 1.0  # length of the windows that an interval within a run rests on: longer than what correlates neighbouring steps
MIN_WINDOWS = 3
MIN_BOOTSTRAPPED = 10  # windows; a bootstrap of 3 to 5 holds the truth in 72 to 82 % of cases only
RESAMPLES = 2000
CONFIDENCE = 0.95
TARGET_FRACTION = 0.95  # of the uncompressed accuracy, when the experiment sets no target
# Student's t at 97.5 % for 1, 2, ... degrees of freedom; a bootstrap of three repeats would be far too narrow
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
MIN_ORDERED = 6  # repeats whose least and most cover the median with at least 95 %
PARTS = ("compute", "encode", "idle", "exchange", "decode")  # of a step, in the order they happen
NAN = float("nan")
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval, and how it was had: over windows of one run it says nothing of how runs differ."""

    low: float = NAN
    high: float = NAN
    method: str = ""


def throughput_samples_s(steps: pd.DataFrame) -> float:
    """Return all workers' samples over worker 0's training clock."""
    step_s, samples = _per_step(steps)
    return _ratio(float(samples.sum()), float(step_s.sum()))


def throughput_interval(steps: pd.DataFrame, seed: int = 0) -> Interval:
    """Return the interval of the throughput of one run, from windows of it.

    1. Cut the run into windows of whole steps, each at least 1 s of training clock. Fewer than 3 windows say nothing.
    2. Fewer than 10: Student's interval of their throughputs.
    3. Else draw as many windows as there are, with replacement; their samples over their seconds is one throughput. Repeat, and take the
       central 95 %.
    """
    step_s, per_step = _per_step(steps)
    begins = _windows(step_s)
    if len(begins) < MIN_WINDOWS:
        return Interval()
    samples, seconds = np.add.reduceat(per_step, begins), np.add.reduceat(step_s, begins)
    if len(begins) < MIN_BOOTSTRAPPED:
        return _student(samples / seconds, f"95 % Student t over {WINDOW_S:g} s windows")
    draws = np.random.default_rng(seed).integers(0, len(begins), size=(RESAMPLES, len(begins)))
    values = samples[draws].sum(axis=1) / seconds[draws].sum(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high), f"95 % bootstrap over {WINDOW_S:g} s windows")


def repeats_interval(values: list[float]) -> Interval:
    """Return Student's interval of the mean over repeats; two repeats at least, none of them infinite."""
    return _student(np.array(values, dtype=float), f"95 % Student t over {len(values)} repeats")


def median_interval(values: list[float]) -> Interval:
    """Return a 95 % interval of the median over repeats.

    From 6 repeats on it is had from their order alone: the k-th least and the k-th most, with the largest k that still covers 95 %.
    Fewer cannot cover that much; then it is Student's interval of the mean, which always holds the median too. A repeat that never got
    somewhere is infinite: it has a place in the order but no mean, and an end of the interval that is infinite is left open (NaN).
    """
    count = len(values)
    if count < MIN_ORDERED:
        return repeats_interval(values)
    ordered, tail, place = sorted(values), 0.5**count, 0
    while tail + comb(count, place + 1) * 0.5**count <= (1 - CONFIDENCE) / 2:
        place += 1
        tail += comb(count, place) * 0.5**count
    low, high = (end if np.isfinite(end) else NAN for end in (ordered[place], ordered[count - 1 - place]))
    return Interval(low, high, f"95 % of the median over {count} repeats")


def step_count(steps: pd.DataFrame) -> int:
    """Return how many steps worker 0 finished."""
    return len(np.unique(_worker0(steps, "step")[0]))


def has_adapted(steps: pd.DataFrame) -> bool:
    """Tell whether the ratio kept moving during the run (by over 1 %, at least thrice), or the policy believed something about the network.

    A scheme that begins dense and then stays at its ratio, as PowerSGD does, moves once. An adaptive scheme need not move in every run:
    whether a scheme is one, `adaptive` tells.
    """
    (ratio,) = _worker0(steps, "ratio")
    ratio = ratio[~np.isnan(ratio)]
    moves = int((np.abs(np.diff(ratio)) > 0.01 * ratio[:-1]).sum())
    return moves >= 3 or any(bool(steps[belief].notna().any()) for belief in ("btlbw_bps", "congested"))


def mean_step_s(steps: pd.DataFrame) -> float:
    """Return the mean step time of worker 0, whose clock is the training clock."""
    return _mean(pd.Series(_worker0(steps, "step_s")[0]))


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
    return _mean(pd.Series(_per_step(steps)[1]))


def samples_of(steps: pd.DataFrame, numbers: Numbers) -> Numbers:
    """Return the samples that all workers together trained on in the steps of these numbers, each of which is there."""
    known, places = np.unique(steps["step"].to_numpy(), return_inverse=True)
    sums = np.bincount(places, weights=np.nan_to_num(steps["samples"].to_numpy())).astype(float)  # without any step, integers
    return sums[np.searchsorted(known, numbers)]


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
    begins_s, lasts_s = _worker0(steps, "t_s", "step_s")
    if background.empty or not len(begins_s):
        return NAN
    start_s, end_s = pd.Series(begins_s).min(), pd.Series(begins_s + lasts_s).max()
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


def downsample_max(x: Numbers, y: Numbers, bins: int) -> tuple[Numbers, Numbers]:
    """Keep the largest y of each of `bins` equal stretches of x, where it was, so that no spike is lost."""
    if len(x) <= bins:
        return x, y
    edges = np.linspace(x[0], x[-1], bins + 1)[1:-1]
    places = pd.Series(y).groupby(np.searchsorted(edges, x, side="right")).idxmax().to_numpy()
    return x[places], y[places]


def _student(values: Numbers, method: str) -> Interval:
    """Return Student's interval of the mean of what is never negative; none of a single value or an infinite one."""
    count = len(values)
    if count < 2 or not np.isfinite(values).all():
        return Interval()
    t = T_975[count - 2] if count - 2 < len(T_975) else 1.96 + 2.5 / (count - 1)
    middle, half = float(np.mean(values)), t * float(np.std(values, ddof=1)) / count**0.5
    return Interval(max(0.0, middle - half), middle + half, method)


def _worker0(steps: pd.DataFrame, *columns: str) -> list[Numbers]:
    """Return columns of worker 0's steps, in their order; arrays, as frames cost far more than the few rows of a run."""
    mine = np.flatnonzero(steps["rank"].to_numpy() == 0)
    mine = mine[np.argsort(steps["step"].to_numpy()[mine], kind="stable")]
    return [steps[column].to_numpy()[mine] for column in columns]


def _per_step(steps: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Return, for each step worker 0 finished, its time and the samples of all workers."""
    step, step_s = _worker0(steps, "step", "step_s")
    known = ~np.isnan(step_s)
    return step_s[known], samples_of(steps, step[known])


def _windows(step_s: Numbers) -> list[int]:
    """Return where windows of whole steps begin, each of at least WINDOW_S; a shorter rest joins the last window."""
    begins = [0] if len(step_s) else []
    filled = 0.0
    for place, lasted_s in enumerate(step_s):
        if filled >= WINDOW_S:
            begins.append(place)
            filled = 0.0
        filled += lasted_s
    return begins[:-1] if len(begins) > 1 and filled < WINDOW_S else begins


def _mean(values: pd.Series) -> float:
    return float(values.mean()) if values.notna().any() else NAN


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else NAN
