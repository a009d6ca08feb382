"""Wait for a calm moment of the machine: while its host takes the processors away, frames are late whatever is done here."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.emulation.counters import realtime
from testbed.emulation.wakefulness import stay_awake

PROBE_S = 1.0
WAKE_EVERY_S = 1e-3
CALM_S = 0.3e-3  # 99 % of a calm machine's wake-ups are sooner: a third of what makes a run invalid
PAUSE_S = 2.0
PATIENCE_S = 60.0


def await_calm(waiting: Callable[[str], None]) -> bool:
    """Wait until the machine wakes up in time, a minute at most; `waiting` is told meanwhile. Tell whether it does."""
    deadline = time.monotonic() + PATIENCE_S
    while (late_s := wakeup_lateness_s()) > CALM_S:
        if time.monotonic() > deadline:
            return False
        waiting(f"waiting for a calm moment: this machine wakes up {late_s * 1e3:.1f} ms late")
        time.sleep(PAUSE_S)
    return True


def wakeup_lateness_s() -> float:
    """Return by how much 1 % of short sleeps end late, in the scheduling and wakefulness that the delay line has."""
    late_s = []
    awake = stay_awake()
    with realtime():
        until = time.monotonic() + PROBE_S
        while (now := time.monotonic()) < until:
            time.sleep(WAKE_EVERY_S)
            late_s.append(time.monotonic() - now - WAKE_EVERY_S)
    if awake is not None:
        awake.close()
    return sorted(late_s)[int(0.99 * len(late_s))]
