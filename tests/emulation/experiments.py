"""Start the real command line on tiny experiments, and look at what it leaves on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMPLETE = (0, 3)  # exit codes; 3: complete, and a busy machine made a run one not to be believed
BUSY = ("INVALID", "not faithful", "too busy")  # what a run says of its network when the machine had no time for it
CALM_TRIES = 3
MARK = "TESTBED_TEST_MARK"
TINY = """
name: {name}
topology: {{kind: dumbbell, workers: 2, bottleneck: {{rate: 20mbit, delay: 2ms}}, access: {{rate: 40mbit}}}}
workload: {{kind: train, model: small_cnn, dataset: fashion-mnist, batch_size: 32, optimizer: {{name: sgd, lr: 0.05}},
           budget: {{seconds: {seconds}}}, eval_every: 2s, eval_samples: 500, warmup_steps: 3}}
schemes: [{schemes}]
"""


def write_tiny(folder: Path, name: str = "tiny", seconds: float = 4, schemes: str = "none") -> Path:
    """Write an experiment file."""
    path = folder / f"{name}.yaml"
    path.write_text(TINY.format(name=name, seconds=seconds, schemes=schemes))
    return path


def command(experiment: Path, *options: str, report: bool = False) -> list[str]:
    """Return the command line of a run whose results go beside the experiment file; drawing its figures takes seconds more."""
    run = [sys.executable, "-m", "testbed", "run", str(experiment), "--results", str(experiment.parent / "results")]
    return [*run, *options] if report else [*run, *options, "--no-report"]


def run_when_calm(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; again, twice at most, if its network was not to be believed, and for no other reason."""
    for _ in range(CALM_TRIES):
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode == 0 or not any(words in done.stdout + done.stderr for words in BUSY):
            break
    return done


def start(arguments: list[str]) -> subprocess.Popen[str]:
    """Start a command in a session of its own, as a terminal would."""
    marked = {**os.environ, MARK: "1"}  # every process of the run inherits it
    return subprocess.Popen(
        arguments, cwd=ROOT, env=marked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def manifest(results: Path, run: str) -> dict[str, Any]:
    """Read a run's manifest; empty while there is none."""
    try:
        content: dict[str, Any] = json.loads((results / run / "manifest.json").read_text())
    except OSError:
        return {}
    return content


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


@dataclass(frozen=True)
class Machine:
    """What our runs could leave behind."""

    processes: frozenset[int]  # that carry our mark
    interfaces: frozenset[str]
    mounts: tuple[str, ...]
    named_namespaces: frozenset[str]
    cpu_groups: frozenset[str]  # that limit workers


def look_at_machine() -> Machine:
    """Take stock of our processes, the interfaces, the mounts, the named namespaces and the control groups."""
    processes = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}=1".encode() in (entry / "environ").read_bytes().split(b"\0"):
                processes.add(int(entry.name))
        except OSError:
            continue
    netns = Path("/run/netns")
    return Machine(
        frozenset(processes),
        frozenset(os.listdir("/sys/class/net")),
        tuple(sorted(_mounts())),
        frozenset(os.listdir(netns)) if netns.exists() else frozenset(),
        frozenset(str(path) for places in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{places}netsense-testbed-*")),
    )


def _mounts() -> Iterator[str]:
    """Yield where something is mounted; a Docker engine on this machine mounts for its own containers, at any time."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split()[4], after.split()[0]
        if kind not in ("overlay", "nsfs") and "/containers/" not in place:
            yield place


def workers_of(run_folder: Path) -> list[int]:
    """Return the outer process ids of a run's workers: those that have its worker logs open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                target = os.readlink(entry / "fd/2")
            except OSError:
                continue
            if target.startswith(str(run_folder / "logs" / "worker-")):
                found.append((target, int(entry.name)))
    return [pid for _, pid in sorted(found)]
