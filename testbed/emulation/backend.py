"""Run one run of an experiment on the emulated network: start its sandbox, follow it, let others watch it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.api import Api, ApiError
from controller.board import BoardError
from testbed.emulation.child import JsonLines
from testbed.emulation.counters import VerificationError
from testbed.emulation.cpulimits import CpuGroups
from testbed.emulation.live import LiveRun
from testbed.emulation.plan import RunPlan
from testbed.emulation.sandboxes import Sandboxes
from testbed.ownership import give_to_caller
from testbed.record import RunFolder

SOCKET = "api.sock"
TICK_S = 0.5
LOG_LINES = 12


class RunFailed(RuntimeError):
    """A run that did not come to its end; the message has the reason and the last log lines."""


class NotFaithful(RunFailed):
    """A run that never began to train: its network was measured and found wrong, which on a busy machine passes."""


@dataclass(frozen=True)
class Tell:
    """Whom to tell while a run goes on: of the stage it is in, and now and then that it still is."""

    stage: Callable[[str], None]
    tick: Callable[[], None]


def execute(plan: RunPlan, folder: RunFolder, tell: Tell, sandboxes: Sandboxes, listen: tuple[str, int] | None = None) -> None:
    """Run the plan in a sandbox of its own, keeping the folder's manifest up to date; raise RunFailed if it fails."""
    if plan.containers is not None:
        from testbed.containers.removal import cleared  # Docker's client is imported where it is needed

        with cleared(plan.containers["run"]):  # CPU is limited by the engine
            _execute(plan, folder, tell, sandboxes, listen)
        return
    with CpuGroups(plan.cpus, plan.dilation) as groups:
        try:
            _execute(replace(plan, cpu_groups=groups.paths), folder, tell, sandboxes, listen)
        finally:
            folder.save(cpu_limits=groups.report())


def _execute(plan: RunPlan, folder: RunFolder, tell: Tell, sandboxes: Sandboxes, listen: tuple[str, int] | None) -> None:
    log = folder.logs / "sandbox.log"
    (folder.stream / SOCKET).symlink_to(f"../{SOCKET}")  # for people: containers see the stream folder, and not what this leads to
    following = _Following(sandboxes.process(log), plan, folder, tell, listen)
    code: int | None = None
    try:
        following.ask(plan.to_json())
        tell.stage("booting the network")
        code = following.follow()
        if code != 0:
            raise RunFailed(f"the sandbox ended with code {code}\n{_last_lines(sandboxes.log)}")
    finally:
        following.close()
        if code is None:  # it is still there
            sandboxes.discard()


class _Following:
    """A sandbox at work: what it says goes into the folder and to the API, what the API is asked goes into the sandbox."""

    def __init__(
        self, process: subprocess.Popen[bytes], plan: RunPlan, folder: RunFolder, tell: Tell, listen: tuple[str, int] | None
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._input, self._lines = process, process.stdin, JsonLines(process.stdout.fileno())
        self._plan, self._folder, self._tell, self._listen = plan, folder, tell, listen
        self._asking = threading.Lock()
        self._paths: list[list[str]] = []
        self._live: LiveRun | None = None
        self._api: Api | None = None

    def ask(self, request: dict[str, Any]) -> None:
        """Send one line into the sandbox, from any thread."""
        with self._asking:
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()

    def follow(self) -> int:
        """Note what the sandbox says until nothing of it is left; return its exit code."""
        while not self._lines.ended:
            for message in self._lines.read(TICK_S):
                if message["event"] == "ended":
                    return int(message["code"])
                self._note(message)
            self._tell.tick()
        return self._process.wait()

    def close(self) -> None:
        """End the API."""
        if self._api is not None:
            self._api.close()
        if self._live is not None:
            self._live.close()
        (self._folder.stream / SOCKET).unlink(missing_ok=True)

    def _note(self, message: dict[str, Any]) -> None:
        now, folder = time.monotonic(), self._folder
        match message.pop("event"):
            case "booted":
                substituted = [*folder.manifest.get("substituted", []), *message["substituted"]]
                folder.save(boot_s=message["seconds"], substituted=substituted, paths=message["paths"])
                folder.event(now, "booted", f"network up in {message['seconds']:.2f} s, rules installed in {message['rules_s']:.2f} s")
                self._paths = message["paths"]
                self._tell.stage("verifying the network")
            case "verified":
                folder.save(verification=message["verification"], transport=message["transport"])
                folder.event(now, "verified", f"rates and round-trip times verified in {message['verification']['seconds']:.2f} s")
                self._serve()
                self._tell.stage("starting workers")
            case "started":
                self._tell.stage(f"worker {message['rank']} started, warming up")
            case "controller":
                said = message["message"]
                folder.event(now, said["event"], in_words(said), {key: value for key, value in said.items() if key != "paths"})
                if said["event"] == "pinned" and not said["error"]:
                    folder.save(steered=True)
                if self._live is not None:
                    self._live.hear(said)
            case "condition":
                folder.event(message["mono_s"], message["kind"], message["text"], message["data"])
            case "worker_failed":
                rank, code = message["rank"], message["code"]
                what = message["why"] or (f"was killed by signal {-code}" if code < 0 else f"ended with code {code}")
                folder.event(now, "worker_failed", f"worker {rank} {what}", message)
                raise RunFailed(f"worker {rank} {what}; its last lines:\n{_last_lines(folder.path / message['log'])}")
            case "done":
                folder.save(**message["marks"])
            case "error":
                folder.event(now, "error", message["text"])
                raise NotFaithful(message["text"]) if message["kind"] == VerificationError.__name__ else RunFailed(message["text"])

    def _serve(self) -> None:
        """Open the API, without TCP if that cannot be had; a run does not fail for it."""
        plan, folder = self._plan, self._folder
        socket = folder.path / SOCKET
        try:
            self._live = LiveRun(folder.manifest["experiment"], plan.run, plan.network, folder.stream / "board.bin", self.ask)
            self._live.hear({"event": "installed", "paths": self._paths})
            try:
                self._api = Api(self._live, socket, self._listen)
            except ApiError as error:
                self._tell_of_no_api(str(error))
                self._api = Api(self._live, socket)
            self._api.start()
            give_to_caller(socket)
        except (ApiError, BoardError, OSError) as error:
            self._tell_of_no_api(f"nobody can watch this run: {error}")

    def _tell_of_no_api(self, text: str) -> None:
        self._folder.event(time.monotonic(), "no_api", text)
        self._tell.stage(text)


def in_words(said: dict[str, Any]) -> str:
    """Put what the controller said into a sentence."""
    match said["event"]:
        case "installed":
            return f"{said['rules']} rules on {said['switches']} switches installed and acknowledged in {said['seconds']:.2f} s"
        case "rerouted":
            lost = f", {len(said['unreachable'])} pairs have no path" if said["unreachable"] else ""
            return f"{said['link']}: {said['pairs']} pairs re-routed in {said['seconds'] * 1e3:.0f} ms{lost}"
        case "link_down" | "link_up":
            return f"link {said['link']} is {said['event'].removeprefix('link_')}"
        case "switch_left" | "switch_joined":
            return f"switch {said['switch']} has {said['event'].removeprefix('switch_')}"
        case "pinned":
            return said["error"] or " ".join(["pinned:", *said["path"], *([f"({said['note']})"] if said.get("note") else [])])
        case "controller_lost":
            return f"{said['text']}; another one takes over"
        case other:
            return str(said.get("text", other))


def _last_lines(log: Path) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return "(no log)"
