"""The command testbed on a pretended network, without its start: python -m tests.unit.testbed.cluster.quick_testbed SOCKET

What it imports is most of what a short command costs. The server imports it once and runs every command in a fork; CLIENT, made
executable, is the command, and hands over its arguments, folder, environment and files. Nothing but imports happens before a fork.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path

CLIENT = """\
#!{python}
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({path!r})
    request = {{"arguments": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(int(server.recv(10)))
"""
LONGEST_REQUEST_BYTES = 1 << 20


def accept(path: str) -> socket.socket:
    """Say when there is something to connect to; return, in a fork, the connection of a command."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that wait for commands
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            assert len(os.listdir("/proc/self/task")) == 1, "an import has started threads, which forks would lose"
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return connection
            connection.close()


def become_command(connection: socket.socket) -> None:
    """Return in another fork, as the command that was asked for; tell its exit code when it has ended."""
    content, files, _, _ = socket.recv_fds(connection, LONGEST_REQUEST_BYTES, 3)
    request = json.loads(content)
    command = os.fork()
    if command:
        _, status = os.waitpid(command, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]


if __name__ == "__main__":
    # else numpy and pyarrow start threads on import
    os.environ |= {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    gc.disable()  # what is imported stays: looking through it now, and again at the end of every command, takes longer than most of them
    import pytest
    import torch  # noqa: F401 - planning asks models for their sizes

    from testbed import cli, planning, reporting, runner  # noqa: F401 - commands import all but the first only when they need them
    from testbed.emulation.backend import RunFailed
    from tests.unit.testbed.pretended import PretendedExperiment, make_able

    gc.freeze()
    gc.enable()
    become_command(accept(sys.argv[1]))
    aside = Path(sys.argv[0]).parent / "aside"
    aside.mkdir(exist_ok=True)
    patch = pytest.MonkeyPatch()
    make_able(patch, aside)
    pretended = PretendedExperiment(aside, patch)
    pretended.faults[os.environ.get("FAILING", "")] = [RunFailed("worker 2 died")] * 2
    pretended.verdicts[os.environ.get("INVALID", "")] = [["slow"]] * 2
    cli.app()
