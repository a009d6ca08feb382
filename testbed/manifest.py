"""What a run's manifest says before anything is started, whatever the run is made on."""

from __future__ import annotations

import os
import platform
from typing import Any

from testbed import machine, spec
from testbed.processes import this_process
from testbed.record import now
from testbed.spec import congestion
from testbed.sweep import Run


def opening(run: Run, command: str, earlier: list[dict[str, Any]]) -> dict[str, Any]:
    """Return which run of which experiment this is, by what code on what machine, after which attempts."""
    return {
        "experiment": run.experiment_name,
        "run": run.slug,
        "scheme": run.scheme.slug,
        "scheme_label": run.scheme.label,
        "cell": run.cell,
        "repeat": run.repeat,
        "seed": run.seed,
        "dilation": run.experiment.dilation,
        "backend": run.experiment.backend,
        "spec": spec.resolved(run.experiment),
        "command": command,
        "started": now(),
        "versions": machine.versions(),
        "git_commit": machine.git_commit(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "substituted": congestion.substituted(run.experiment),
        "earlier_attempts": earlier,
        "runner": this_process(),
    }
