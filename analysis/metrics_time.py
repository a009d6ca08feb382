"""What a run did from moment to moment, as pure functions of its tables: arrays over time, for figures that show change.

Times are seconds since worker 0's first step. A stretch of time in which nothing can be said is NaN.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from analysis.metrics import NAN, Numbers, samples_of

WINDOW_S = 0.5
MOST_WINDOWS = 150  # about what a panel can show apart


def step_times_s(steps: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Return when each step of worker 0 began and ended, in the order of time."""
    begins_s = steps["t_s"].to_numpy()
    ends_s = begins_s + steps["step_s"].to_numpy()
    mine = np.flatnonzero((steps["rank"].to_numpy() == 0) & ~np.isnan(ends_s))
    mine = mine[np.argsort(begins_s[mine], kind="stable")]
    return begins_s[mine], ends_s[mine]


def end_s(steps: pd.DataFrame) -> float:
    """Return when worker 0 ended its last step; NaN without one."""
    _, ends_s = step_times_s(steps)
    return float(ends_s.max()) if len(ends_s) else NAN


def window_edges_s(last_s: float) -> Numbers:
    """Cut the time from 0 to `last_s` into equal windows of about half a second, longer ones where they would be too many."""
    count = max(1, min(MOST_WINDOWS, math.floor(last_s / WINDOW_S))) if last_s > 0 else 1
    return np.linspace(0.0, max(last_s, WINDOW_S / 1000), count + 1)


def throughput_over_time(steps: pd.DataFrame, edges_s: Numbers) -> Numbers:
    """Return all workers' samples a second of training in each window; evaluations are not training, a window full of them is NaN.

    A step's samples count evenly over its time, so windows need not hold whole steps.
    """
    first = np.flatnonzero(steps["rank"].to_numpy() == 0)
    first = first[np.argsort(steps["t_s"].to_numpy()[first], kind="stable")]
    numbers, begins, lasts = (steps[column].to_numpy()[first] for column in ("step", "t_s", "step_s"))
    if not len(begins):
        return np.full(len(edges_s) - 1, NAN)
    times = np.column_stack([begins, begins + lasts]).ravel()
    times = np.maximum.accumulate(times)  # the clock of the record and the step's own differ by microseconds
    trained_s = _growth(times, lasts, edges_s)
    counted = _growth(times, samples_of(steps, numbers), edges_s)
    return np.divide(counted, trained_s, out=np.full(len(counted), NAN), where=trained_s > 0.01 * np.diff(edges_s))


def delivered_bps(samples: pd.DataFrame, edges_s: Numbers) -> Numbers:
    """Return what one direction of a link sent in each window, over the part of it that its samples cover; NaN for less than half."""
    mine = samples.groupby("t_s")["sent_bytes"].sum()  # of a direction with classes, of all of them
    if len(mine) < 2:
        return np.full(len(edges_s) - 1, NAN)
    covered_s = np.clip(edges_s, mine.index[0], mine.index[-1])
    growth, lasts = np.diff(np.interp(covered_s, mine.index.to_numpy(), mine.to_numpy())), np.diff(covered_s)
    known = (lasts >= 0.5 * np.diff(edges_s)) & (growth >= 0)
    return np.divide(8 * growth, lasts, out=np.full(len(growth), NAN), where=known)


def configured_bps(samples: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Return the times at which one direction's rate changed and the rates from then on, the first sample's in front."""
    mine = samples.groupby("t_s")["rate_bps"].max().dropna()
    changed = mine[mine.ne(mine.shift())]
    return changed.index.to_numpy(dtype=float), changed.to_numpy(dtype=float)


def exchange_over_time(steps: pd.DataFrame) -> pd.DataFrame:
    """Return for each step when it began, the exchange of the worker that took longest, all workers' ratio and worker 0's compute."""
    clock = steps[steps["rank"] == 0].sort_values("step").set_index("step")
    longest = steps.groupby("step")["exchange_s"].max()
    return pd.DataFrame({"t_s": clock["t_s"], "exchange_s": longest, "ratio": clock["ratio"], "compute_s": clock["compute_s"]}).dropna()


def bits_per_value(steps: pd.DataFrame, workers: int, server: bool) -> pd.DataFrame:
    """Return the bits a gradient value costs in each step, by direction: `both` around a ring, `push` and `pull` of a server.

    - Ring: 32 times the bytes sent over those of an uncompressed ring all-reduce, so 32 without compression. Payloads given to all
      (all-gather) travel further than sums: N/2 times their own size.
    - Server in worker 0: the bytes one other worker sends (push) and receives (pull), over the values of the gradient.
    """
    values = (steps["dense_bytes"] / 4).where(steps["dense_bytes"] > 0)
    if server:
        others = steps["rank"] != 0
        bits = pd.DataFrame({"push": 8 * steps["bytes_sent"] / values, "pull": 8 * steps["bytes_received"] / values})[others]
    else:
        hops = 2 * (workers - 1) / workers if workers > 1 else NAN
        bits = pd.DataFrame({"both": 8 * steps["bytes_sent"] / (hops * values)})
    return bits.where(bits > 0).groupby(steps["step"]).mean().dropna(how="all")


def bytes_so_far(steps: pd.DataFrame) -> pd.Series:
    """Return what one worker has sent (mean over workers) by how many steps were done, from 0 steps on."""
    per_step = steps.groupby("step")["bytes_sent"].mean().sort_index()
    done = per_step.cumsum()
    done.index = done.index + 1
    return pd.concat([pd.Series({0: 0.0}), done])


def _growth(times_s: Numbers, amounts: Numbers, edges_s: Numbers) -> Numbers:
    """Return how much of the amounts falls into each window; each lasts from one odd to one even time."""
    total = np.concatenate([[0.0], np.cumsum(amounts)])
    levels = np.column_stack([total[:-1], total[1:]]).ravel()
    return np.diff(np.interp(edges_s, times_s, levels))
