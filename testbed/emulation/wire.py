"""Do the interfaces' counters agree with the bytes that the schemes say they sent? Pure arithmetic."""

from __future__ import annotations

from typing import Any

import pandas as pd

from topologies.model import ETHERNET_HEADER_BYTES

SLACK = (0.95, 1.08)  # of the least and the most the interfaces may count for what the schemes sent
HEADERS_BYTES = 52  # IP, TCP and its timestamps
ACK_FRAME_BYTES = HEADERS_BYTES + ETHERNET_HEADER_BYTES
SEGMENTS_PER_ACK = 2

Verdict = tuple[float | None, float | None, bool, str]  # value, limit, whether it is ok, and what is wrong in words


def compare(steps: pd.DataFrame, left_out: pd.Series, workers: list[dict[str, Any]], mtu: int, resent: float) -> Verdict:
    """Compare the interfaces' counters with the payload, its headers, acknowledgements and every segment sent again.

    Steps that are `left_out` have other traffic in their counters; of a worker's messages, the judged steps have their share.
    """
    judged = steps[~left_out]
    if judged.empty and not steps.empty:
        return None, None, True, "not judged: background traffic was on every worker's host throughout"
    sent, received = float(judged["bytes_sent"].sum()), float(judged["bytes_received"].sum())
    least, most = bounds(sent, received, _messages(steps, left_out, workers), mtu)
    most += resent * (mtu + ETHERNET_HEADER_BYTES)
    counted = float(judged["wire_bytes_sent"].sum())
    ratio = counted / least if least else None
    ok = SLACK[0] * least <= counted <= SLACK[1] * most
    text = f"the interfaces counted {ratio or 0:.2f} times the bytes the scheme says it sent"
    if left_out.any():
        text += f"; {left_out.mean():.0%} of the steps were not judged, as background traffic was on their hosts"
    return ratio, SLACK[1] * most / least if least else None, ok, text


def bounds(sent: float, received: float, messages: float, mtu: int) -> tuple[float, float]:
    """Return the least and the most that interfaces count for a payload: L2 bytes, acknowledgements included, nothing sent again.

    How messages share segments and acknowledgements is TCP's choice: the least is full segments and an acknowledgement for every
    two of them, the most adds a segment and an acknowledgement for each message.
    """
    segment = mtu - HEADERS_BYTES
    least = sent * (mtu + ETHERNET_HEADER_BYTES) / segment + received / segment / SEGMENTS_PER_ACK * ACK_FRAME_BYTES
    return least, least + 2 * messages * ACK_FRAME_BYTES


def _messages(steps: pd.DataFrame, left_out: pd.Series, workers: list[dict[str, Any]]) -> float:
    if not left_out.any():
        return float(sum(worker["messages"] for worker in workers))
    shares = (~left_out).groupby(steps["rank"]).mean()
    return float(sum(worker["messages"] * shares.get(rank, 0.0) for rank, worker in enumerate(workers)))
