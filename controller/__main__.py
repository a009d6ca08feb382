"""The SDN controller of one network: python -m controller

Reads JSON lines from standard input: a job, then pins at any time; it ends when the input does.

    {"job": {...}}                                               controller/job.py tells what is in it
    {"pin": {"id": 7, "path": ["h1", "s1", "s2", "h3"]}}

Answers by JSON lines on standard output; logs go to standard error. Pairs are unordered, paths are given for both directions: those that
are in force. `down` in `installed` is all that is down: whatever else a predecessor told down is up.

    {"event": "listening"}                                       switches may connect
    {"event": "installed", "seconds", "rules", "switches", "down": [links], "paths"}     all switches have acknowledged all their rules
    {"event": "link_down" | "link_up", "link"}
    {"event": "rerouted", "link", "pairs", "unreachable", "seconds", "paths"}    pairs: how many have another path than before
    {"event": "pinned", "id", "path", "error": null or the reason, "paths"}    and "note" where the pin is accepted, but not in force
    {"event": "switch_left" | "switch_joined", "switch"}
    {"event": "alive"}                                           once a second, by the thread that does the work
    {"event": "error", "text"}                                   and the process ends with code 1
"""

from __future__ import annotations

import json
import os
import signal
import sys

from controller.app import start
from controller.job import ControllerJob
from controller.reporting import guarded, report, start_logging


@guarded
def main() -> None:
    """Control the network that standard input describes, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the runner decides what ends
    start_logging()
    if line := sys.stdin.readline():
        app = start(ControllerJob.from_json(json.loads(line)["job"]))
        report(event="listening")
        for line in sys.stdin:
            request = json.loads(line)["pin"]
            app.pin(request["id"], request["path"])
    sys.stdout.flush()
    os._exit(0)  # os-ken's threads know no other end


if __name__ == "__main__":
    main()
