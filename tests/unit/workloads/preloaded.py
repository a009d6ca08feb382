"""Import once, run often: python -m tests.unit.workloads.preloaded MODULE... imports modules, then runs scripts, each in a fork of its own.

Importing torch and its compiler is most of what a short script costs. Nothing but imports happens before a fork, so there are no
threads to lose; and a fork ends as any interpreter does, by finalising itself, so that what goes wrong only there is noticed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "tests.unit.workloads.preloaded"]


@dataclass
class Fork:
    """A script that runs in a process of its own."""

    python: Preloaded
    pid: int
    pidfd: int
    folder: Path
    code: int | None = None  # once it was waited for

    @property
    def said(self) -> str:
        """Return what it has written to its stdout until now."""
        return (self.folder / "1").read_text()

    @property
    def complained(self) -> str:
        """Return what it has written to its stderr until now."""
        return (self.folder / "2").read_text()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        signal.pidfd_send_signal(self.pidfd, number)

    def wait(self, timeout_s: float) -> int:
        """Wait for its end and return its exit code; a negative one is a signal."""
        if self.code is None:
            assert await_first([self], timeout_s), f"still running: {self.said[-1000:]}{self.complained[-3000:]}"
            self.code = self.python.ask(wait=self.pid)
            os.close(self.pidfd)
        return self.code


def await_first(forks: list[Fork], timeout_s: float) -> bool:
    """Wait until one of them ends; return whether one did."""
    return bool(select.select([fork.pidfd for fork in forks], [], [], timeout_s)[0])


@dataclass
class Preloaded:
    """A process that has imported modules and forks for every script."""

    process: subprocess.Popen[str]
    folder: Path

    def ask(self, **request: Any) -> int:
        """Send a request and return the answer."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    @contextmanager
    def forks(self, scripts: list[str]) -> Iterator[list[Fork]]:
        """Run scripts side by side; those that have not ended by then are killed."""
        started: list[Fork] = []
        try:
            for script in scripts:
                folder = Path(tempfile.mkdtemp(dir=self.folder))
                for name in ("1", "2"):
                    (folder / name).touch()  # there is nothing to read yet, but it can be read
                pid = self.ask(script=script, folder=str(folder))
                started.append(Fork(self, pid, os.pidfd_open(pid), folder))
            yield started
        finally:
            running = [fork for fork in started if fork.code is None]
            for fork in running:
                fork.send_signal(signal.SIGKILL)
            for fork in running:
                fork.wait(timeout_s=20)


@contextmanager
def preloaded(modules: list[str], prefix: tuple[str, ...] = ()) -> Iterator[Preloaded]:
    """Start a process that has imported modules, as part of another command if there is a prefix; end it on leaving."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*prefix, *COMMAND, *modules], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        yield Preloaded(process, Path(folder))


def serve() -> str:
    """Answer until stdin closes, then return nothing; in a fork, return the script that it is to run."""
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            assert len(os.listdir("/proc/self/task")) == 1, "an import has started threads, which forks would lose"
            answer = os.fork()
            if answer == 0:
                redirect(Path(request["folder"]))
                return str(request["script"])
        print(answer, flush=True)
    return ""


def redirect(folder: Path) -> None:
    """Read nothing from now on, and write into the files 1 and 2 of a folder."""
    for number, path in enumerate((os.devnull, folder / "1", folder / "2")):
        os.dup2(os.open(path, os.O_RDWR | os.O_APPEND), number)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # else numpy starts threads on import
    gc.disable()  # what is imported stays: to look through it now, and again at the end of every fork, takes longer than most scripts
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    exec(serve(), {"__name__": "__main__"})
