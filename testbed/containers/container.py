"""One container: a host of the emulated network whose main process reads our lines and answers, and ends when we do."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from testbed.containers.engine import EngineError, asking
from testbed.containers.order import ContainerOrder
from testbed.emulation.child import TELL_TIMEOUT_S, JsonLines, Message

SCRATCH_BYTES = 64 << 20  # of /tmp, where a container may write beside what is mounted; and in /dev/shm, of which Docker gives as much
MOST_PROCESSES = 512  # and threads
MOST_WORDS = 200  # characters of what a process complained of last
LAST_WORDS_S = 1.0  # in which they come, once it has ended
_FRAME = struct.Struct(">BxxxL")  # how the engine sends output: which stream, and how many bytes
_STDOUT = 1
_ATTACHED = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}


class ContainerError(RuntimeError):
    """A container that could not be started or used."""


@dataclass(frozen=True)
class Errand:
    """What a container is started for."""

    host: str
    command: list[str]
    names: str  # the file of the names it knows, its /etc/hosts
    writable: list[str]  # files and folders, by the same name inside and outside
    environment: dict[str, str]
    gpus: list[str]


class AttachedLines(JsonLines):
    """The lines that a container's process prints; what it complains of goes to a log."""

    def __init__(self, descriptor: int, log: Path) -> None:
        super().__init__(descriptor)
        self._log, self._frames = log, b""

    def unwrapped(self, chunk: bytes) -> bytes:
        """Sort what came into output, which is returned, and complaints."""
        self._frames += chunk
        output = b""
        while len(self._frames) >= _FRAME.size:
            stream, length = _FRAME.unpack_from(self._frames)
            if len(self._frames) < _FRAME.size + length:
                break
            content, self._frames = self._frames[_FRAME.size : _FRAME.size + length], self._frames[_FRAME.size + length :]
            if stream == _STDOUT:
                output += content
            else:
                with self._log.open("ab") as log:
                    log.write(content)
        return output

    def last_words(self) -> str:
        """Return the last line of the complaints of a process that has ended, or its beginning; "" if it had none."""
        deadline_s = time.monotonic() + LAST_WORDS_S
        with suppress(ValueError):  # what it printed meanwhile is for nobody
            while not self.ended and (left_s := deadline_s - time.monotonic()) > 0:
                self.read(left_s)
        try:
            lines = self._log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip()[:MOST_WORDS] for line in reversed(lines) if line.strip()), "")


class Container:
    """A running container."""

    def __init__(self, client: docker.APIClient, order: ContainerOrder, errand: Errand, log: Path) -> None:
        """Create it, attach to it and start it."""
        self._client, self.host = client, errand.host
        try:
            with asking():
                self.id = client.create_container(**_settings(client, order, errand))["Id"]
                attached = client.attach_socket(self.id, _ATTACHED)
                client.start(self.id)
                self.pid = int(client.inspect_container(self.id)["State"]["Pid"])  # 0: it has ended already
        except EngineError as error:
            raise ContainerError(f"the container of {errand.host} does not start: {error}") from error
        self._keep = attached  # the response that the socket belongs to
        self._socket = socket.socket(fileno=os.dup(attached.fileno()))
        self.lines = AttachedLines(self._socket.fileno(), log)

    def tell(self, message: Message) -> None:
        """Send its process one line."""
        left = json.dumps(message).encode() + b"\n"
        try:
            while left:
                if not select.select([], [self._socket], [], TELL_TIMEOUT_S)[1]:
                    raise ContainerError(f"the container of {self.host} did not listen for {TELL_TIMEOUT_S:.0f} s")
                left = left[self._socket.send(left) :]
        except OSError as error:
            raise ContainerError(f"the container of {self.host} {self.why_it_ended()}") from error

    def wait_for(self, event: str, timeout_s: float) -> None:
        """Wait until it says that something has happened; ContainerError if it says that it cannot, or ends, or says nothing."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            for message in self.lines.read(left_s):
                if message["event"] == event:
                    return
                if message["event"] == "error":
                    raise ContainerError(f"the container of {self.host}: {message['text']}")
            if self.lines.ended:
                raise ContainerError(f"the container of {self.host} {self.why_it_ended()}")
        raise ContainerError(f"the container of {self.host} was not {event} within {timeout_s:.0f} s")

    def why_it_ended(self) -> str:
        """Say what the engine knows of its end: it remembers, also when the container is gone; an engine that is gone took it along.

        A process that ended by itself has the last word.
        """
        try:
            return explained(self._events(), self.lines.last_words)
        except (DockerException, OSError):
            return "ended, and the Docker engine does not tell why: see whether it runs (systemctl status docker), and start it again"

    def ran_out_of_memory(self) -> bool:
        """Tell whether the kernel has killed a process in it for want of memory; the engine may learn of that a moment later."""
        for _ in range(10):
            with suppress(DockerException, OSError):  # who does not answer does not know
                if any(event["Action"] == "oom" for event in self._events()):
                    return True
            time.sleep(0.1)
        return False

    def limit_cpus(self, quota_us: int, period_us: int) -> None:
        """Hold it to its share of the processors from now on."""
        with asking():
            self._client.update_container(self.id, cpu_quota=quota_us, cpu_period=period_us)

    def throttled_s(self) -> float | None:
        """Return how long it was held back, in the machine's time; None where the engine does not count that."""
        with asking():
            stats = self._client.stats(self.id, stream=False, one_shot=True)
        nanoseconds = ((stats.get("cpu_stats") or {}).get("throttling_data") or {}).get("throttled_time")
        return None if nanoseconds is None else float(nanoseconds) / 1e9

    def close(self) -> None:
        """Let go of it: its input ends, and so does it."""
        self._socket.close()
        self._keep.close()

    def _events(self) -> list[dict[str, Any]]:
        past = self._client.events(since=0, until=int(time.time()) + 1, filters={"container": self.id}, decode=True)
        return [event for event in past if event.get("Type") == "container"]


def explained(events: list[dict[str, Any]], last_words: Callable[[], str]) -> str:
    """Put the end of a container, as the engine's events tell it, into words; one that ended by itself is asked for its own."""
    actions = {event["Action"]: event["Actor"]["Attributes"] for event in events}
    if "oom" in actions:
        return "ran out of the memory it may use (hosts.memory)"
    if "kill" in actions:
        return f"was killed from outside (docker kill, signal {actions['kill'].get('signal', '?')})"
    how = f"ended with code {actions['die'].get('exitCode', '?')}" if "die" in actions else "ended"
    return ": ".join(part for part in (how, last_words()) if part)


def _settings(client: docker.APIClient, order: ContainerOrder, errand: Errand) -> dict[str, Any]:
    readable = {**order.data, errand.names: "/etc/hosts"}
    # Not the engine's short form, SOURCE:TARGET: paths may hold a colon, and a source that is missing is to be told, not made.
    mounts = [docker.types.Mount(path, path, type="bind") for path in errand.writable]
    mounts += [docker.types.Mount(target, source, type="bind", read_only=True) for source, target in readable.items()]
    gpus = [docker.types.DeviceRequest(driver="nvidia", device_ids=errand.gpus, capabilities=[["gpu"]])] if errand.gpus else None
    return {
        "image": order.image,
        "entrypoint": errand.command,  # whatever an image of one's own starts
        "hostname": errand.host,
        "name": f"netsense-{order.run}-{errand.host}",
        "user": f"{order.user_id}:{order.group_id}",
        "labels": order.labels(errand.host),
        "environment": {"HOME": "/tmp", **errand.environment},
        "network_disabled": True,  # a namespace with a loopback, and none of the engine's own preparations, half of the time a start takes
        "stdin_open": True,  # and closed with our end of it: whatever ends us ends it
        "host_config": client.create_host_config(
            network_mode="none",  # the emulated interface comes later, and no other
            init=False,  # the process that we attach to is the one we asked for
            userns_mode="host",  # users have the numbers they have outside, also where the engine is set to shift them
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            auto_remove=True,
            mounts=mounts,
            tmpfs={"/tmp": f"size={SCRATCH_BYTES}"},
            mem_limit=order.memory_bytes,
            memswap_limit=order.memory_bytes,
            pids_limit=MOST_PROCESSES,
            log_config={"Type": "none"},
            device_requests=gpus,
        ),
    }
