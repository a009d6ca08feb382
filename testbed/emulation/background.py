"""Background traffic of a run: iperf3 flows that begin and end at their times, and a record of what they delivered.

`prepare` connects every flow while the network is quiet (see held.py); from `begin` on, whoever owns the loop calls `act` when
`next_due_s` has come. Nothing here waits for a network or a process but `prepare` and `close`.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from testbed.emulation.goodput import Interval, Meter, TcpMeter, UdpMeter
from testbed.emulation.held import INTERVAL_S, HeldFlow, Logs, connected
from testbed.emulation.iperf import PORT, udp_payload_bytes
from testbed.emulation.network import EmulatedNetwork
from testbed.record import itself
from testbed.timeline import BackgroundFlow

Report = Callable[[str, str, dict[str, Any]], None]  # kind, text and data of an event that happens now

DRAIN_S = 2.0  # after a flow's end, for what is still under way
DRAIN_POLL_S = 0.05


class Background:
    """All background flows of one run."""

    def __init__(self, network: EmulatedNetwork, flows: Sequence[BackgroundFlow], stream: Path, logs: Path, report: Report) -> None:
        """Take the flows; rows go to background.jsonl in the folder `stream`, what iperf3 says into the folder `logs`."""
        self._network, self._logs = network, logs
        self._output = stream / "background.jsonl"
        self._report = report
        self._flows = tuple(flows)
        self._entries: list[_Entry] = []

    @property
    def pids(self) -> list[int]:
        """Return the processes of iperf3."""
        return [process.pid for entry in self._entries for process in (entry.held.client, entry.held.server)]

    def prepare(self) -> None:
        """Connect every flow; call it while nothing else is on the network."""
        taken: Counter[str] = Counter()  # ports, by target
        for number, flow in enumerate(self._flows):
            logs = Logs(self._logs / f"background-{number}-client.log", self._logs / f"background-{number}-server.log")
            held = connected(self._network, flow, PORT + taken[flow.target], logs)
            taken[flow.target] += 1
            meter = self._meter(flow, held, logs)
            self._entries.append(_Entry(number, flow, held, meter, self._write, self._tell))
        for entry in self._entries:
            entry.held.wait_for_word()

    def begin(self, origin_s: float) -> None:
        """Count the flows' times from this moment on the monotonic clock."""
        for entry in self._entries:
            entry.begin(origin_s)

    def next_due_s(self) -> float:
        """Return when there is something to do next, infinity if never."""
        return min((entry.due_s for entry in self._entries), default=math.inf)

    def act(self, now_s: float) -> None:
        """Do what is due."""
        for entry in self._entries:
            if entry.due_s <= now_s:
                entry.act(now_s)

    def close(self) -> None:
        """Stop what still goes on, wait for what is under way, and end every process."""
        now_s = time.monotonic()
        for entry in self._entries:
            entry.stop(now_s)
        while (due_s := self.next_due_s()) < math.inf:
            time.sleep(max(0.0, due_s - time.monotonic()))
            self.act(time.monotonic())
        for entry in self._entries:
            entry.held.end()
        self._entries = []

    def _tell(self, kind: str, text: str, data: dict[str, Any]) -> None:
        """Report in the experiment's time."""
        late = {"late_s": data["late_s"] / self._network.dilation} if "late_s" in data else {}
        self._report(kind, text, {**data, **late})

    def _meter(self, flow: BackgroundFlow, held: HeldFlow, logs: Logs) -> Meter:
        if flow.protocol == "udp":
            return UdpMeter(logs.server, held.server_began_s, udp_payload_bytes(self._network.mtu), flow.flows)
        return TcpMeter(held.senders, held.receivers)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        with open(self._output, "a", opener=itself) as output:
            output.writelines(json.dumps(row) + "\n" for row in rows)


class _Entry:
    """Flows that begin and end together."""

    def __init__(
        self,
        number: int,
        flow: BackgroundFlow,
        held: HeldFlow,
        meter: Meter,
        write: Callable[[list[dict[str, Any]]], None],
        report: Report,
    ) -> None:
        self.held = held
        self.due_s = math.inf
        self._flow, self._meter, self._write, self._report = flow, meter, write, report
        self._names = {
            "entry": number,
            "source": flow.source,
            "target": flow.target,
            "protocol": flow.protocol,
            "flows": flow.flows,
        }
        self._state: Literal["held", "running", "draining", "over"] = "held"
        self._start_s = self._stop_s = math.inf
        self._stopped_s = math.inf
        self._failed = False

    def begin(self, origin_s: float) -> None:
        """Learn when to begin and to end."""
        self._start_s, self._stop_s = origin_s + self._flow.start_s, origin_s + self._flow.stop_s
        self.due_s = self._start_s

    def act(self, now_s: float) -> None:
        """Do what is due."""
        if self._state == "held":
            self._start()
        elif self._state == "running":
            self._look(now_s)
            if now_s >= self._stop_s:
                self.stop(now_s)
            else:
                self.due_s = min(self.due_s + INTERVAL_S, self._stop_s)
        elif self._state == "draining":
            self._drain(now_s)

    def stop(self, now_s: float) -> None:
        """End the flows; what has not begun never will."""
        if self._state == "running":
            if now_s < self._stop_s:
                self._look(now_s)
            self.held.stop()
            self._stopped_s = time.monotonic()
            self._state, self.due_s = "draining", now_s + DRAIN_POLL_S
            self._tell("background_end", "ended", now_s - self._stop_s)
        elif self._state == "held":
            self._state, self.due_s = "over", math.inf

    def _start(self) -> None:
        self._meter.begin(time.monotonic())
        self.held.release()
        began_s = time.monotonic()
        self._state, self.due_s = "running", min(began_s + INTERVAL_S, self._stop_s)
        self._tell("background_start", "began", began_s - self._start_s)

    def _look(self, now_s: float) -> None:
        """Record what has come since the last look, and whether the flows still go on."""
        self._record(self._meter.read(now_s))
        if not self._failed and self.held.has_ended:
            self._failed = True
            self._report("background_failed", f"{self.held.name} broke off: {self.held.last_words()}", self._names)
        if self._failed and isinstance(self._meter, UdpMeter):
            self._record(self._meter.silence(now_s))

    def _drain(self, now_s: float) -> None:
        """Record what was still under way; what brings nothing is no more part of the flows."""
        self._record([one for one in self._meter.read(now_s) if one.start_s < self._stopped_s or one.received_bytes or one.lost_packets])
        if self._failed or self._meter.is_over(self._stopped_s) or now_s >= self._stopped_s + DRAIN_S:
            self._state, self.due_s = "over", math.inf
            self.held.kill()
        else:
            self.due_s = now_s + DRAIN_POLL_S

    def _record(self, intervals: list[Interval]) -> None:
        self._write([{**self._times_and_counts(one), **self._names} for one in intervals])

    @staticmethod
    def _times_and_counts(interval: Interval) -> dict[str, Any]:
        seconds = interval.end_s - interval.start_s
        return {
            "mono_s": interval.start_s,
            "seconds": seconds,
            "received_bytes": interval.received_bytes,
            "goodput_bps": interval.received_bytes * 8 / seconds,
            "retransmits": interval.retransmits,
            "lost_packets": interval.lost_packets,
        }

    def _tell(self, kind: str, verb: str, late_s: float) -> None:
        when = f"{late_s * 1e3:.0f} ms late" if late_s >= 0 else "with the run"
        self._report(kind, f"{self.held.name} {verb} {when}", {**self._names, "late_s": late_s})
