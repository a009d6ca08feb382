"""Messages and files between the ranks, through the store that torchrun has made. Plain JSON and bytes: nothing is pickled."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any, Protocol

Message = dict[str, Any]

LOOK_INTERVAL_S = 0.2
PIECE_BYTES = 1 << 20  # of a file, compressed: the store handles one message at a time


class Store(Protocol):
    """What is used of torch.distributed's stores."""

    def set(self, key: str, value: Any) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Return a key's value."""

    def check(self, keys: list[str]) -> bool:
        """Tell whether all keys are there."""

    def delete_key(self, key: str) -> bool:
        """Forget a key."""


class Mailbox:
    """Named messages, each written once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def post(self, name: str, message: Message) -> None:
        """Leave a message."""
        self._store.set(name, json.dumps(message))

    def has(self, name: str) -> bool:
        """Tell whether a message is there."""
        return self._store.check([name])

    def read(self, name: str, patience_s: float = float("inf")) -> Message:
        """Wait for a message; TimeoutError if it does not come. Signals are heard meanwhile."""
        deadline = time.monotonic() + patience_s
        while not self.has(name):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no {name} within {patience_s:.0f} s")
            time.sleep(LOOK_INTERVAL_S)
        message: Message = json.loads(self._store.get(name))
        return message

    def send(self, name: str, content: bytes) -> None:
        """Leave a file, compressed and in pieces."""
        packed = zlib.compress(content, 1)
        pieces = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
        for number, piece in enumerate(pieces):
            self._store.set(f"{name}/{number}", piece)
        self.post(name, {"pieces": len(pieces)})

    def take(self, name: str) -> bytes:
        """Return a file, and have the store forget it."""
        names = [f"{name}/{number}" for number in range(self.read(name)["pieces"])]
        packed = b""
        for piece in names:
            packed += self._store.get(piece)
            self._store.delete_key(piece)
        self._store.delete_key(name)
        return zlib.decompress(packed)
