"""Keep the processors from sleeping deeply while a network is emulated.

A processor in a deep idle state wakes up late, and every hop of every packet waits for it. The kernel honours the request for
as long as the file is open, so it ends with the process.
"""

from __future__ import annotations

import struct
from io import FileIO

_REQUEST = "/dev/cpu_dma_latency"


def stay_awake() -> FileIO | None:
    """Ask for wake-ups without delay; keep the result. None where the kernel takes no such request."""
    try:
        request = FileIO(_REQUEST, "w")
        request.write(struct.pack("i", 0))
    except OSError:
        return None
    return request
