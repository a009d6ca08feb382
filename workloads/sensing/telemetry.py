"""What the controller's board tells of this worker's path around the ring: the rate left for us, the backlog, the round trip.

Once a step, for every queue that the hop from this worker to the next crosses:
(1) own = ring hops that cross the queue x what this worker sent, as all workers send about as much, x WIRE_FACTOR;
(2) background = what the queue sent in the last WINDOW_S, or since the step before, less own;
(3) available = configured rate - background, at most what the link's other classes leave, at least LEAST_SHARE of the rate;
(4) backlog = what waits in the queue x the background's share of what it sent: our own bytes will be gone before we send again.
The tightest queue counts, with its backlog.

Acknowledgements of what other hops send the opposite way count as background: some percent of their rate. So does whatever is sent
beside the exchange, as in evaluations.

The board is in the machine's time. Where the experiment's is slower (dilation), windows last that much longer here, and what is told is
converted.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from controller.board import HOP_BITS, Board, Entry

LEAST_SHARE = 0.25  # of a queue's rate: competing TCP that fills the link while we compute yields at least this much to us
WINDOW_S = 0.5
RESCAN_S = 1.0  # how soon a new path is noticed that still crosses all queues of the old one
WIRE_FACTOR = 1514 / 1448  # L2 bytes a byte of payload at an MTU of 1500; at 9000 it makes own 4 % too large


@dataclass(frozen=True, slots=True)
class PathReading:
    """The state of a path; without arguments, that nothing is known of it."""

    available_bps: float = math.inf
    backlog_bytes: float = 0.0  # of others, in the queue with the least available
    base_rtt_s: float = 0.0  # twice the configured delays of the path: the way back is taken to be like the way there
    age_s: float = math.inf  # of the oldest counters used


UNKNOWN = PathReading()


class PathSensor:
    """Reads one worker's path; never raises, whatever becomes of the board."""

    def __init__(self, board_path: str, hop: int, dilation: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """Read hop `hop` of the ring, the one that worker `hop` sends over; the board may come later."""
        self._board_path, self._hop, self._dilation, self._clock = board_path, hop, dilation, clock
        self._board: Board | None = None
        self._meters: dict[int, _Background] = {}  # of the path's queues, by their number
        self._beside: dict[int, list[int]] = {}  # of each, the queues of the same direction's other classes
        self._rescan_at = -math.inf
        self._own_bytes = 0

    def read(self, bytes_sent: int) -> PathReading:
        """Return the path's state at the end of a step that sent so much."""
        self._own_bytes += bytes_sent
        if self._hop >= HOP_BITS:
            return UNKNOWN
        try:
            return self._read()
        except Exception:  # training must not end because the board is gone or garbled: the next read opens it anew
            self.close()
            return UNKNOWN

    def close(self) -> None:
        """Let go of the board."""
        board, self._board, self._rescan_at = self._board, None, -math.inf
        if board is not None:
            with suppress(Exception):
                board.close()

    def _read(self) -> PathReading:
        if self._board is None:
            self._board = Board.open(self._board_path)
        now = self._clock()
        entries = {i: self._board.read(i) for i in self._meters} if now < self._rescan_at else {}
        if not entries or not all(self._is_crossed(entry) for entry in entries.values()):
            everything = self._board.read_all()
            entries = {i: entry for i, entry in enumerate(everything) if self._is_crossed(entry)}
            self._meters = {i: self._meters.get(i) or _Background(WINDOW_S * self._dilation) for i in entries}
            self._beside = {
                i: [j for j, other in enumerate(everything) if j != i and _share_a_link(entry, other)] for i, entry in entries.items()
            }
            self._rescan_at = now + RESCAN_S * self._dilation
        readings = [entry.queue for entry in entries.values() if entry.queue is not None]
        if not entries or len(readings) < len(entries):
            return UNKNOWN
        available_bps, backlog_bytes = min(self._available(i, entry) for i, entry in entries.items())
        return PathReading(
            available_bps=available_bps * self._dilation,
            backlog_bytes=backlog_bytes,
            base_rtt_s=2 * sum(entry.delay_s for entry in entries.values()) / self._dilation,
            age_s=max(0.0, now - min(reading.mono_s for reading in readings)) / self._dilation,
        )

    def _is_crossed(self, entry: Entry) -> bool:
        return bool(entry.hops >> self._hop & 1)

    def _available(self, i: int, entry: Entry) -> tuple[float, float]:
        """Return a queue's rate left for us, and the others' backlog in it."""
        assert entry.queue is not None
        queue, meter = entry.queue, self._meters[i]
        meter.update(queue.mono_s, queue.sent_bytes, self._own_bytes, own_share=entry.hops.bit_count() * WIRE_FACTOR)
        left_bps = min(entry.configured_bps - meter.background_bps, self._left_by_others(i, entry))
        return max(left_bps, LEAST_SHARE * entry.configured_bps), meter.background_share * queue.backlog_bytes

    def _left_by_others(self, i: int, entry: Entry) -> float:
        """Return what the other classes of the same direction leave of its rate: the most that any of its classes may take."""
        assert self._board is not None
        others = [self._board.read(j) for j in self._beside[i]]
        rate_bps = max([entry.configured_bps, *(other.configured_bps for other in others)])
        return rate_bps - sum(other.queue.rate_bps for other in others if other.queue is not None)


def _share_a_link(entry: Entry, other: Entry) -> bool:
    mine, theirs = entry.info, other.info
    return (mine.link, mine.source, mine.target) == (theirs.link, theirs.source, theirs.target)


class _Background:
    """What others send through a queue."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self.background_bps = 0.0
        self.background_share = 0.0  # of all that the queue sent
        self._points: deque[tuple[float, int, int]] = deque()  # (when, the queue's bytes, this worker's bytes), the newest last

    def update(self, mono_s: float, sent_bytes: int, own_bytes: int, own_share: float) -> None:
        """Add a reading of the counters; `own_share`: the queue's bytes for each byte this worker sent."""
        points = self._points
        if points and sent_bytes < points[-1][1]:  # the queue was made anew
            points.clear()
        if not points or mono_s > points[-1][0]:  # else not read again since: its bytes do not hold the last step's yet
            points.append((mono_s, sent_bytes, own_bytes))
        while len(points) > 2 and points[1][0] <= mono_s - self._window_s:
            points.popleft()
        (began_s, sent_before, own_before), (ended_s, sent_after, own_after) = points[0], points[-1]
        if ended_s > began_s:
            growth_bytes = sent_after - sent_before
            background_bytes = max(0.0, growth_bytes - own_share * (own_after - own_before))
            self.background_bps = 8 * background_bytes / (ended_s - began_s)
            self.background_share = background_bytes / growth_bytes if growth_bytes else 1.0  # a link that stands: nothing will be gone
