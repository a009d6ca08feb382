"""Measure round-trip times by ICMP echo, one probe at a time over many hosts.

Several `ping` processes at once wake up together and queue behind each other; on a small machine that adds a
millisecond. One loop that spaces its probes sees the path alone.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time

_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_HEADER = struct.Struct("!BBHHH")
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_PAYLOAD = bytes(56)


def ping(addresses: list[str], count: int, interval_s: float, timeout_s: float) -> dict[str, list[float]]:
    """Send `count` echo requests to each address in turn, from this thread's namespace; return the RTTs that came back."""
    identifier = os.getpid() & 0xFFFF
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as echo:
        echo.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sent_at: dict[int, tuple[str, float]] = {}
        rtts: dict[str, list[float]] = {address: [] for address in addresses}
        for number, address in enumerate(address for _ in range(count) for address in addresses):
            sent_at[number] = (address, time.time())
            echo.sendto(_request(identifier, number), (address, 0))
            _collect(echo, identifier, sent_at, rtts, time.monotonic() + interval_s)
        deadline = time.monotonic() + timeout_s
        while sent_at and time.monotonic() < deadline:
            _collect(echo, identifier, sent_at, rtts, min(deadline, time.monotonic() + interval_s))
    return rtts


def _collect(
    echo: socket.socket, identifier: int, sent_at: dict[int, tuple[str, float]], rtts: dict[str, list[float]], until: float
) -> None:
    """Take the replies that arrive until the given monotonic time, by the kernel's arrival stamps."""
    while (left_s := until - time.monotonic()) > 0:
        if not select.select([echo], [], [], left_s)[0]:
            return
        packet, ancillary, _, _ = echo.recvmsg(2048, 64)
        kind, _, _, whose, number = _HEADER.unpack_from(packet, (packet[0] & 15) * 4)
        if kind == _ECHO_REPLY and whose == identifier and number in sent_at:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            address, sent = sent_at.pop(number)
            rtts[address].append(seconds + nanoseconds * 1e-9 - sent)


def _request(identifier: int, number: int) -> bytes:
    body = _HEADER.pack(_ECHO_REQUEST, 0, 0, identifier, number) + _PAYLOAD
    return _HEADER.pack(_ECHO_REQUEST, 0, checksum(body), identifier, number) + _PAYLOAD


def checksum(data: bytes) -> int:
    """Return the Internet checksum of data of even length."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
