"""Conditions at work on a real network, seen by what arrives; each runs in a sandbox of its own, by `scenarios.play`."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from typing import Any

from testbed.emulation.conditions import Conditions
from testbed.emulation.namespaces import network_namespace
from testbed.emulation.ping import ping
from testbed.emulation.roundtrips import calibrate
from testbed.spec.mahimahi import payable, rates
from testbed.timeline import Change, Timeline
from tests.emulation.scenarios import boot, receiver_at, start_sender
from topologies import LinkSpec, dumbbell

MTU = 1500
FRAME_BYTES = MTU + 14
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")

Arrival = tuple[float, int]  # when, by the monotonic clock, and which


def _conduct(network: Any, changes: list[dict[str, Any]], seconds: float) -> tuple[float, list[dict[str, Any]]]:
    """Carry out changes from now on; return when that began and what was told."""
    told: list[dict[str, Any]] = []
    timeline = Timeline(tuple(Change(**change) for change in changes))
    conditions = Conditions(network, timeline, lambda mono_s, kind, text, data: told.append({"mono_s": mono_s, "text": text, **data}))
    began_s = time.monotonic()
    conditions.step_began(0, began_s)
    while (now_s := time.monotonic()) < began_s + seconds:
        conditions.act()
        time.sleep(max(0.0, min(conditions.next_due_s, now_s + 0.05) - time.monotonic()))
    return began_s, told


def _arrivals(receiver: socket.socket) -> list[Arrival]:
    """Read what has arrived, each datagram with the kernel's time of it."""
    offset_s = time.time() - time.monotonic()
    found = []
    while True:
        try:
            content, ancillary, _, _ = receiver.recvmsg(65535, 64)
        except BlockingIOError:
            return found
        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
        found.append((seconds + nanoseconds * 1e-9 - offset_s, struct.unpack_from("!I", content)[0]))


def _stamped_receiver(network: Any, host: str) -> socket.socket:
    receiver = receiver_at(network, host)
    receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return receiver


def _await_first(receiver: socket.socket) -> None:
    """Wait until a sender has begun: how long that takes is the machine's to say."""
    select.select([receiver], [], [], 10.0)
    time.sleep(0.1)


def _mbit(arrivals: list[Arrival], from_s: float, to_s: float) -> float:
    return sum(from_s <= at_s < to_s for at_s, _ in arrivals) * FRAME_BYTES * 8 / (to_s - from_s) / 1e6


def rate_steps(link: str, rates_bps: list[Any], offered_bps: float, queue_bytes: int) -> dict[str, Any]:
    """Send from h1 to h2 while the rate of a link goes through the values, one a second; tell what arrived when."""
    spec = LinkSpec(100e6, queue_bytes=queue_bytes)
    network = boot(dumbbell(2, spec, spec), MTU)
    receiver = _stamped_receiver(network, "h2")
    sender = start_sender(network, "h1", network.address("h2"), MTU, offered_bps, len(rates_bps) + 1.0)
    _await_first(receiver)
    changes = [{"link": link, "at_s": float(i), "rate_bps": rate} for i, rate in enumerate(rates_bps)]
    began_s, told = _conduct(network, changes, len(rates_bps))
    sent = int(sender.communicate()[0])
    time.sleep(queue_bytes * 8 / 1e6)
    arrivals = _arrivals(receiver)
    return {
        "sent": sent,
        "numbers_in_order": [number for _, number in arrivals] == list(range(len(arrivals))),
        "received": len(arrivals),
        # each second, from 50 ms after the change on: by then the new rate must hold
        "mbit": [_mbit(arrivals, began_s + i + 0.05, began_s + i + 1) for i in range(len(rates_bps))],
        "late_s": [one["late_s"] for one in told],
    }


def delay_steps() -> dict[str, Any]:
    """Ping over a link whose delay goes from none to 20 ms, then 5, and loses every fifth frame in the end."""
    network = boot(dumbbell(2, LinkSpec(20e6), LinkSpec(100e6, 0.002)), MTU, delayed=frozenset({"bottleneck"}))
    calibrate(network)

    def pinged(count: int, **change: Any) -> list[float]:
        _conduct(network, [{"link": "bottleneck", "at_s": 0.0, **change}] if change else [], 0.1)
        with network_namespace(network.host_pids["h1"]):
            return ping([network.address("h2")], count, 0.005, 1.0)[network.address("h2")]

    return {
        "at_first_s": pinged(30),
        "later_s": pinged(30, delay_s=0.020),
        "one_way_s": pinged(30, delay_s=0.005, direction="forward"),
        "jitter_s": pinged(200, delay_s=0.020, jitter_s=0.010),
        "lossy": len(pinged(400, jitter_s=0.0, loss=0.2, direction="backward")),
        "again_s": pinged(30, delay_s=0.0, jitter_s=0.0, loss=0.0),
    }


def down_and_up(link: str) -> dict[str, Any]:
    """Ping across a link that is down for a second; tell which of 300 pings, 10 ms apart, were answered, and the rate afterwards."""

    network = boot(dumbbell(2, LinkSpec(10e6, 0.002), LinkSpec(50e6)), MTU)
    answered: list[int] = []

    def watch() -> None:
        with network_namespace(network.host_pids["h1"]):
            for _ in range(30):
                answered.append(len(ping([network.address("h2")], 10, 0.005, 0.05)[network.address("h2")]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    changes = [{"link": link, "at_s": 0.5, "state": "down"}, {"link": link, "at_s": 1.2, "state": "up"}]
    _conduct(network, changes, 2.0)
    watcher.join()
    receiver = _stamped_receiver(network, "h2")
    sender = start_sender(network, "h1", network.address("h2"), MTU, 20e6, 1.5)
    sender.wait()
    arrivals = _arrivals(receiver)
    end_s = arrivals[-1][0]
    return {"answered": answered, "mbit_after": _mbit(arrivals, end_s - 1.0, end_s)}


def followed_trace(seconds: int, most_mbit: float, seed: int, pauses: bool = False) -> dict[str, Any]:
    """Overload a link that follows a Mahimahi trace; return the worst difference of any window of a second, as a share of the trace."""
    times_ms = trace_with_pauses(seconds, most_mbit) if pauses else mahimahi_trace(seconds, most_mbit, seed)
    steps = payable(rates(times_ms), times_ms[-1] / 1000)
    spec = LinkSpec(most_mbit * 1e6, queue_bytes=100_000)
    network = boot(dumbbell(2, spec, LinkSpec(1.2 * most_mbit * 1e6)), MTU)
    receiver = _stamped_receiver(network, "h2")
    sender = start_sender(network, "h1", network.address("h2"), MTU, 1.1 * most_mbit * 1e6, seconds + 1.0)
    _await_first(receiver)
    changes = [{"link": "bottleneck", "direction": "forward", "at_s": at_s, "rate_bps": rate_bps} for at_s, rate_bps in steps]
    began_s, told = _conduct(network, changes, seconds)
    sender.wait()
    arrived_s = [at_s - began_s for at_s, _ in _arrivals(receiver)]
    worst, least_bytes = 0.0, FRAME_BYTES
    for start_ms in range(50, times_ms[-1] - 1000, 50):  # one round of the trace
        allowed = 1500 * sum(start_ms < t <= start_ms + 1000 for t in times_ms)
        passed = FRAME_BYTES * sum(start_ms <= t * 1000 < start_ms + 1000 for t in arrived_s)
        worst = max(worst, max(0.0, abs(passed - allowed) - least_bytes) / allowed)
    return {"worst": worst, "changes": len(told), "late_s": max(one["late_s"] for one in told)}


def mahimahi_trace(seconds: int, most_mbit: float, seed: int) -> list[int]:
    """Return a trace like that of a cellular link: every 200 ms another rate between a twentieth and the whole."""
    draw = random.Random(seed)
    times_ms: list[int] = []
    due = 0.0
    for start_ms in range(0, seconds * 1000, 200):
        packets_per_ms = most_mbit * draw.uniform(0.05, 1.0) * 1e3 / 12_000
        for ms in range(start_ms, start_ms + 200):
            due += packets_per_ms
            while due >= 1:
                times_ms.append(ms + 1)
                due -= 1
    return times_ms


def trace_with_pauses(seconds: int, most_mbit: float) -> list[int]:
    """Return a trace that lets packets through for 270 ms and none for 130 ms."""
    packets = round(most_mbit * 1e3 / 12_000)
    return [ms + 1 for ms in range(seconds * 1000) if ms % 400 < 270 for _ in range(packets)]
