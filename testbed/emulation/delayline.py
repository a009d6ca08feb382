"""The delay line: one process that holds frames between pairs of interfaces, where the kernel has no netem.

Speaks JSON lines. First line in: {"directions": [{"name", "from", "to", "delay_s", "jitter_s", "loss", "seed"}, ...],
"frame_bytes": n, "redraw_s": seconds}; answer {"event": "ready"}. Then {"set": name, "delay_s": ...} changes a direction in
place, and {"stats": true} answers with counters and a histogram of lateness. It ends when its input closes.

A frame is due at the kernel's arrival stamp + the hold time, so a late wake-up is not added to the delay but shows as lateness. For the
same reason nothing has to be read when it comes, only before it is due: while frames are held the loop sleeps until the next is due, and
then reads whatever has come meanwhile, and sends whatever is due or nearly so. Reading never keeps frames that are due waiting.
Jitter is redrawn every 50 ms (`redraw_s`), not per frame, and never overtakes: a draw per frame into a FIFO would raise the mean under
load.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from testbed.processes import die_with_parent

JITTER_REDRAW_S = 0.050
LATENESS_BUCKET_S = 10e-6
LATENESS_BUCKETS = 2000  # the last one takes everything later
REALTIME_PRIORITY = 25
LONGEST_STAY_S = 0.1  # in the socket, before it is read: an older stamp is a clock that was set
EARLY_S = 0.1e-3  # a frame may go this much before its time, beside one that is due: half as many wake-ups
LEAST_BLIND_HOLD_S = 0.4e-3  # where frames are held for less, each wakes the loop as it comes
LONGEST_NAP_S = 2e-3  # after which orders are heard

_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_PACKET_STATISTICS = 6
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_BUFFER_BYTES = 32 << 20
_TIMESPEC = struct.Struct("@qq")


@dataclass
class Direction:
    """Frames on their way from one interface to another."""

    name: str
    target: socket.socket
    delay_s: float
    jitter_s: float
    loss: float
    random: random.Random
    redraw_s: float = JITTER_REDRAW_S
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    hold_s: float = 0.0
    redraw_at: float = 0.0
    last_due: float = 0.0
    frames: int = 0
    sent_bytes: int = 0
    lost: int = 0
    send_errors: int = 0
    lateness: Counter[int] = field(default_factory=Counter)

    def take(self, frame: bytes, arrived: float) -> None:
        """Hold a frame that arrived at the given monotonic time, or lose it."""
        if self.loss and self.random.random() < self.loss:
            self.lost += 1
            return
        if arrived >= self.redraw_at:
            self.hold_s = self.delay_s
            if self.jitter_s:
                self.hold_s = max(0.0, self.delay_s + self.random.uniform(-self.jitter_s, self.jitter_s))
            self.redraw_at = arrived + self.redraw_s
        due = arrived + self.hold_s
        if due < self.last_due:
            due = self.last_due
        self.last_due = due
        self.held.append((due, frame))

    def release(self, now: float) -> None:
        """Send every frame that is due, or nearly."""
        held = self.held
        while held and held[0][0] <= now + EARLY_S:
            due, frame = held.popleft()
            try:
                self.target.send(frame)
            except OSError:  # interface down or gone, or no buffer: the frame is lost, and counted
                self.send_errors += 1
                continue
            self.frames += 1
            self.sent_bytes += len(frame)
            self.lateness[min(int(max(0.0, now - due) / LATENESS_BUCKET_S), LATENESS_BUCKETS)] += 1

    def change(self, order: dict[str, Any]) -> None:
        """Adopt new values; frames already held keep their time."""
        self.delay_s = order.get("delay_s", self.delay_s)
        self.jitter_s = order.get("jitter_s", self.jitter_s)
        self.loss = order.get("loss", self.loss)
        self.redraw_at = 0.0

    @property
    def least_hold_s(self) -> float:
        """Return the shortest time that a frame may be held."""
        return max(0.0, self.delay_s - self.jitter_s)

    def stats(self) -> dict[str, Any]:
        """Return the counters since the start, the histogram as {bucket: count}."""
        return {
            "frames": self.frames,
            "bytes": self.sent_bytes,
            "lost": self.lost,
            "send_errors": self.send_errors,
            "held": len(self.held),
            "lateness": {str(bucket): count for bucket, count in self.lateness.items()},
        }


class DelayLine:
    """All directions of a run, served by one loop."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Open the interfaces that the configuration names."""
        self._frame_bytes = config["frame_bytes"]
        self._sockets: dict[str, socket.socket] = {}
        self._by_source: dict[int, tuple[socket.socket, Direction]] = {}
        self._socket_drops = 0
        self.directions: dict[str, Direction] = {}
        for entry in config["directions"]:
            direction = Direction(
                entry["name"],
                self._open(entry["to"]),
                entry["delay_s"],
                entry["jitter_s"],
                entry["loss"],
                random.Random(entry["seed"]),
                config["redraw_s"],
            )
            self.directions[entry["name"]] = direction
            source = self._open(entry["from"])
            self._by_source[source.fileno()] = (source, direction)
        self._all = list(self.directions.values())
        self._least_hold_s = min(direction.least_hold_s for direction in self._all)

    def serve(self, control_fd: int) -> None:
        """Move frames until the control input closes."""
        arrivals = select.epoll()
        for descriptor in (*self._by_source, control_fd):
            arrivals.register(descriptor, select.EPOLLIN)
        while True:
            self._rest(arrivals)
            while ready := arrivals.poll(0):  # a frame of each source in turn, so that those due meanwhile need not wait
                now = time.monotonic()
                offset = time.time() - now  # stamps are wall-clock, and it may be set meanwhile: due times must not jump with it
                for descriptor, _ in ready:
                    if descriptor != control_fd:
                        self._receive(*self._by_source[descriptor], now, offset)
                    elif not self._obey(control_fd):
                        return
                self._release()
            self._release()

    def _rest(self, arrivals: select.epoll) -> None:
        """Sleep until something is due, or has come that must be seen before that."""
        dues = [direction.held[0][0] for direction in self._all if direction.held]
        if not dues:
            arrivals.poll()
            return
        rest_s = min(dues) - time.monotonic()
        if rest_s <= 0:
            return
        if self._least_hold_s >= LEAST_BLIND_HOLD_S:
            time.sleep(min(rest_s, self._least_hold_s / 2, LONGEST_NAP_S))
        else:
            select.select([arrivals], [], [], rest_s)

    def _release(self) -> None:
        for direction in self._all:
            if direction.held:
                direction.release(time.monotonic())

    def _receive(self, source: socket.socket, direction: Direction, now: float, offset: float) -> None:
        try:
            frame, ancillary, _, _ = source.recvmsg(self._frame_bytes, 64)
        except OSError:  # nothing there after all, or the interface went down; frames come again when it is up
            return
        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
        direction.take(frame, max(now - LONGEST_STAY_S, min(now, seconds + nanoseconds * 1e-9 - offset)))

    def _obey(self, control_fd: int) -> bool:
        data = os.read(control_fd, 1 << 16)
        if not data:
            return False
        for line in data.decode().splitlines():  # orders are short: a pipe never splits a line under PIPE_BUF
            order = json.loads(line)
            if "set" in order:
                self.directions[order["set"]].change(order)
                self._least_hold_s = min(direction.least_hold_s for direction in self._all)
            else:
                _say({"event": "stats", "socket_drops": self._drops(), "directions": {n: d.stats() for n, d in self.directions.items()}})
        return True

    def _drops(self) -> int:
        for packet_socket in self._sockets.values():  # reading resets the kernel's counter
            self._socket_drops += struct.unpack("II", packet_socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        return self._socket_drops

    def _open(self, interface: str) -> socket.socket:
        if interface not in self._sockets:
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            raw.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            raw.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
            raw.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            raw.setblocking(False)
            raw.bind((interface, 3))  # ETH_P_ALL; bound last, so that no frame comes in before the options hold
            self._sockets[interface] = raw
        return self._sockets[interface]


def _first_line() -> bytes:
    """Read the configuration and not a byte more: what follows is read from the descriptor."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as raw:
        return raw.readline()


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Read the configuration from standard input, then serve."""
    die_with_parent()
    line = DelayLine(json.loads(_first_line()))
    realtime = True
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
    except PermissionError:
        realtime = False
    gc.disable()  # nothing here makes cycles, and a collection would hold frames up
    _say({"event": "ready", "realtime": realtime})
    line.serve(sys.stdin.fileno())


if __name__ == "__main__":
    main()
