"""Did the emulated queues really serve at their configured rate? Pure arithmetic on queue samples.

Fidelity = delivered / configured over the time a queue was backlogged. An interval between two samples is backlogged if
the backlog at its start could fill it (backlog >= rate x dt): then the queue cannot have run empty in it. Only runs of such
intervals count: one alone holds a few frames, and a backlog just over the bar is seen right before a frame leaves more often
than right after. A backlog also means that the token bucket is spent, so its first burst is before the run.

A frame leaves all at once, ahead of the tokens that pay for it, so the frames at a run's two ends are counted wholly or not at all: most of
that is put right by what the last frame still owes at each sample. Where several leave at once, as TCP hands them over, short runs look
slow even so: a queue is called slow only if the account of its token bucket says so too. That one is not used alone: it flatters a slow
queue with short runs (one that is 5 % too slow reads 3 %, or less where many leave at once). Short runs scatter all the same. Where that
scatter is too large to tell a good queue from a bad one, nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.emulation.shaping import BURST_S

WINDOW_S = 1.0
LEAST_BACKLOGGED_S = 0.1  # less backlogged time than this is a handful of frames, and says nothing
LEAST_RUN_INTERVALS = 3  # a shorter run (but of a tenth of a second), or one of fewer bytes, is mostly the frames at its ends
LEAST_RUN_BYTES = 12_000
FAITHFUL = (0.98, 1.05)  # less was served too slowly, more too fast
MOST_UNCERTAIN = 0.01  # standard error of the value; above it, only a value that is bad beyond doubt (two of them) is told
LEAST_ROUGHLY_S = 1.0  # of backlogged time, for a crude value
ROUGHLY = (0.85, 1.15)
CHANGE_S = 0.02  # a new rate is in force a little before it is on record, and HTB first finishes a frame at the old one
LEAST_WINDOW_COVERAGE = 0.2  # a window with less backlogged time than this says little and is not "the worst"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fidelity:
    """How faithfully a queue was served."""

    value: float | None  # None: never backlogged long enough to tell
    coverage: float  # share of the time that counted
    worst_second: float | None  # the lowest value of the consecutive 1 s windows

    def to_json(self) -> dict[str, float | None]:
        """Return it for the manifest."""
        return {"value": self.value, "coverage": self.coverage, "worst_second": self.worst_second}


@dataclass(frozen=True)
class _Intervals:
    start_s: Floats
    seconds: Floats
    delivered_bits: Floats
    configured_bits: Floats
    run: npt.NDArray[np.int_]  # the number of the run it belongs to
    total_s: float


def fidelity(time_s: Floats, sent_bytes: Floats, backlog_bytes: Floats, rate_bps: Floats, sent_packets: Floats | None = None) -> Fidelity:
    """Judge one queue from its samples, in order of time; by how many packets were sent it knows how large they were."""
    if sent_packets is None:
        return _judge(_backlogged(time_s, sent_bytes, backlog_bytes, rate_bps))
    owed_bytes = _owed_bytes(time_s, sent_bytes, sent_packets, rate_bps)
    judged = _judge(_backlogged(time_s, sent_bytes - owed_bytes, backlog_bytes, rate_bps))
    if judged.value is None or judged.value >= FAITHFUL[0]:
        return judged
    debt_bytes = _debt_bytes(time_s, sent_bytes, sent_packets, rate_bps)
    other = _judge(_backlogged(time_s, sent_bytes - debt_bytes, backlog_bytes, rate_bps))
    return other if other.value is not None and FAITHFUL[0] <= other.value <= FAITHFUL[1] else judged


def rough(time_s: Floats, sent_bytes: Floats, backlog_bytes: Floats, rate_bps: Floats) -> float | None:
    """Return delivered / configured over all backlogged time, changes of rate included: crude, but of queues that always change too.

    None for a queue that was not backlogged for as long as can be judged.
    """
    seconds = np.diff(time_s)
    configured_bits = (rate_bps[:-1] + rate_bps[1:]) / 2 * seconds
    counted = backlog_bytes[:-1] * 8.0 >= configured_bits
    if seconds[counted].sum() < LEAST_ROUGHLY_S:
        return None
    return float(np.diff(sent_bytes)[counted].sum() * 8.0 / configured_bits[counted].sum())


def worst_of(queues: list[Fidelity]) -> Fidelity:
    """Judge several queues by the worst of those that can be judged: a good one must not hide a bad one."""
    judged = [queue for queue in queues if queue.value is not None]
    coverage = sum(queue.coverage for queue in queues) / len(queues) if queues else 0.0
    if not judged:
        return Fidelity(None, coverage, None)
    values = [queue.value for queue in judged if queue.value is not None]
    # The lowest, unless it is high enough and another is too high to be true.
    worst = max(values) if min(values) >= FAITHFUL[0] and max(values) > FAITHFUL[1] else min(values)
    seconds = [queue.worst_second for queue in judged if queue.worst_second is not None]
    return Fidelity(worst, coverage, min(seconds, default=None))


def _backlogged(time_s: Floats, sent_bytes: Floats, backlog_bytes: Floats, rate_bps: Floats) -> _Intervals:
    seconds = np.diff(time_s)
    delivered_bits = np.diff(sent_bytes) * 8.0
    configured_bits = rate_bps[:-1] * seconds
    counted = (backlog_bytes[:-1] * 8.0 >= configured_bits) & ~_near_a_change(time_s, rate_bps) & (seconds >= 0)
    run = np.cumsum(np.diff(counted, prepend=False))  # one more at each start and each end of a run
    counted = _in_long_runs(counted, run, seconds, configured_bits) & (seconds > 0)
    total_s = float(time_s[-1] - time_s[0]) if len(time_s) else 0.0
    return _Intervals(time_s[:-1][counted], seconds[counted], delivered_bits[counted], configured_bits[counted], run[counted], total_s)


def _owed_bytes(time_s: Floats, sent_bytes: Floats, sent_packets: Floats, rate_bps: Floats) -> Floats:
    """Return how much of the last frame that left is not paid for yet at each sample; half-way between two samples it left, we say."""
    if len(time_s) < 2:
        return np.zeros(len(time_s))
    packets = np.diff(sent_packets, prepend=sent_packets[0])
    last = np.maximum.accumulate(np.where(packets > 0, np.arange(len(time_s)), 0))  # of the samples, the first one after that frame
    size_bytes = (np.diff(sent_bytes, prepend=sent_bytes[0]) / np.maximum(packets, 1))[last]
    left_s = (time_s[last] + time_s[np.maximum(last - 1, 0)]) / 2
    owed: Floats = np.where(last > 0, np.maximum(0.0, size_bytes - rate_bps / 8 * (time_s - left_s)), 0.0)
    return owed


def _debt_bytes(time_s: Floats, sent_bytes: Floats, sent_packets: Floats, rate_bps: Floats) -> Floats:
    """Return the token bucket's debt at each sample: tokens come at the rate, an idle bucket holds a frame or what comes in BURST_S."""
    sent = np.diff(sent_bytes, prepend=sent_bytes[0])
    frame_bytes = (sent / np.maximum(np.diff(sent_packets, prepend=sent_packets[0]), 1)).max()
    full_bytes = np.maximum(frame_bytes, rate_bps / 8 * BURST_S)
    spent = np.cumsum(sent - np.append(0.0, rate_bps[:-1] / 8 * np.diff(time_s)))
    return np.maximum(0.0, spent + np.maximum.accumulate(-full_bytes - spent))  # never less than that of a full bucket


def _near_a_change(time_s: Floats, rate_bps: Floats) -> npt.NDArray[np.bool_]:
    """Tell which intervals lie across, or right before or after, a change of rate: they belong to neither rate."""
    changes_s = np.append(time_s[1:][np.diff(rate_bps) != 0], np.inf)
    next_s = changes_s[np.searchsorted(changes_s, time_s[:-1] - CHANGE_S, side="right")]
    near: npt.NDArray[np.bool_] = next_s < time_s[1:] + CHANGE_S
    return near


def _in_long_runs(
    counted: npt.NDArray[np.bool_], run: npt.NDArray[np.int_], seconds: Floats, configured_bits: Floats
) -> npt.NDArray[np.bool_]:
    """Leave only the intervals of maximal runs that are long enough to judge by; how much they delivered must not choose them."""
    if not counted.any():
        return counted
    long = (np.bincount(run, seconds > 0) >= LEAST_RUN_INTERVALS) | (np.bincount(run, seconds) >= LEAST_BACKLOGGED_S)
    long &= np.bincount(run, configured_bits) >= LEAST_RUN_BYTES * 8.0
    kept: npt.NDArray[np.bool_] = counted & long[run]
    return kept


def _judge(queue: _Intervals) -> Fidelity:
    backlogged_s = float(queue.seconds.sum())
    coverage = backlogged_s / queue.total_s if queue.total_s else 0.0
    if backlogged_s < LEAST_BACKLOGGED_S:
        return Fidelity(None, coverage, None)
    value = float(queue.delivered_bits.sum() / queue.configured_bits.sum())
    error = _standard_error(queue, value)
    if error > MOST_UNCERTAIN and FAITHFUL[0] - 2 * error <= value <= FAITHFUL[1] + 2 * error:
        return Fidelity(None, coverage, None)
    return Fidelity(value, coverage, _worst_window(queue))


def _standard_error(queue: _Intervals, value: float) -> float:
    """Return the standard error of the value by how much the runs differ; none of a single run."""
    delivered, configured = np.bincount(queue.run, queue.delivered_bits), np.bincount(queue.run, queue.configured_bits)
    runs = int((configured > 0).sum())
    if runs < 2:
        return 0.0
    left_over = delivered - value * configured
    return float(np.sqrt(runs / (runs - 1) * np.square(left_over).sum()) / configured.sum())


def _worst_window(queue: _Intervals) -> float | None:
    if not len(queue.start_s):
        return None
    window = np.floor((queue.start_s - queue.start_s[0]) / WINDOW_S).astype(int)
    seconds = np.bincount(window, queue.seconds)
    enough = seconds >= LEAST_WINDOW_COVERAGE * WINDOW_S
    if not enough.any():
        return None
    served = np.bincount(window, queue.delivered_bits)[enough] / np.bincount(window, queue.configured_bits)[enough]
    return float(served.min())
