"""A connection to Open vSwitch's database that stays open: a change of rate takes a tenth of the time and CPU of starting ovs-vsctl.

JSON-RPC as RFC 7047 describes it, of which this speaks one method. A transaction returns when vswitchd has acted upon it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

TIMEOUT_S = 5.0
_CONFIGURATION = "Open_vSwitch"


class DatabaseError(RuntimeError):
    """The database did not do what was asked."""


class Database:
    """Changes rows by their UUID."""

    def __init__(self, path: str) -> None:
        """Connect to the database server's socket."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(path)
        self._decoder = json.JSONDecoder()
        self._pending = ""
        self._number = 0

    def set_options(self, rows: Mapping[tuple[str, str], Mapping[str, str]]) -> None:
        """Give rows, named by (table, UUID), the `other_config` they are to have, all at once; return when vswitchd has it in force."""
        operations: list[dict[str, Any]] = [
            {"op": "update", "table": table, "where": _is(uuid), "row": {"other_config": ["map", [list(pair) for pair in options.items()]]}}
            for (table, uuid), options in rows.items()
        ]
        operations.append({"op": "mutate", "table": _CONFIGURATION, "where": [], "mutations": [["next_cfg", "+=", 1]]})
        operations.append({"op": "select", "table": _CONFIGURATION, "where": [], "columns": ["next_cfg"]})
        wanted = self._transact(operations)[-1]["rows"]
        told = [{"cur_cfg": row["next_cfg"]} for row in wanted]
        self._transact(
            [
                {
                    "op": "wait",
                    "table": _CONFIGURATION,
                    "timeout": round(TIMEOUT_S * 1000),
                    "columns": ["cur_cfg"],
                    "where": [],
                    "until": "==",
                    "rows": told,
                }
            ]
        )

    def _transact(self, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self._number += 1
        request = {"method": "transact", "params": ["Open_vSwitch", *operations], "id": self._number}
        self._socket.sendall(json.dumps(request).encode())
        while (answer := self._hear()).get("id") != self._number or "result" not in answer:
            if answer.get("method") == "echo":  # the server looks whether we are there
                self._socket.sendall(json.dumps({"result": answer["params"], "error": None, "id": answer["id"]}).encode())
        results: list[dict[str, Any]] = answer["result"] or []
        faults = [str(answer["error"])] if answer["error"] else [str(one) for one in results if one and "error" in one]
        if faults:
            raise DatabaseError(f"Open vSwitch's database refused a change: {'; '.join(faults)}")
        return results

    def _hear(self) -> dict[str, Any]:
        while True:
            try:
                message, end = self._decoder.raw_decode(self._pending)
            except ValueError:
                received = self._socket.recv(1 << 16)
                if not received:
                    raise DatabaseError("Open vSwitch's database server is gone") from None
                self._pending += received.decode()
                continue
            self._pending = self._pending[end:].lstrip()
            answer: dict[str, Any] = message
            return answer


def _is(uuid: str) -> list[list[Any]]:
    return [["_uuid", "==", ["uuid", uuid]]]
