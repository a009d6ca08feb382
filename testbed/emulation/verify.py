"""Prove the network before training: every shaped direction's rate and queue, and the round-trip times."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from testbed.emulation.counters import VerificationError, drain
from testbed.emulation.network import EmulatedNetwork
from testbed.emulation.rates import RATE_TOLERANCE, RateResult, measure_rates
from testbed.emulation.roundtrips import RTT_TOLERANCE, RTT_TOLERANCE_S, RttResult, calibrate


@dataclass(frozen=True)
class Verification:
    """What was measured before the first step."""

    rates: list[RateResult]
    rtts: list[RttResult]
    calibration_s: float  # taken off every delayed direction, so that the whole path has the configured RTT
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it for the manifest."""
        return {**asdict(self), "tolerance": {"rate": RATE_TOLERANCE, "rtt_s": RTT_TOLERANCE_S, "rtt": RTT_TOLERANCE}}


def verify(network: EmulatedNetwork) -> Verification:
    """Measure everything, calibrate the delay, wait for empty queues; raise when a number is out of tolerance."""
    began = time.monotonic()
    calibration_s, rtts = calibrate(network)
    rates = measure_rates(network)
    drain(network)
    result = Verification(rates, rtts, calibration_s, time.monotonic() - began)
    wrong = [rate.complaint for rate in rates if not rate.ok] + [rtt.complaint for rtt in rtts if not rtt.ok]
    if wrong:
        raise VerificationError("the emulated network is not faithful: " + "; ".join(wrong))
    return result
