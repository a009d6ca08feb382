"""A headless Chromium driven over its DevTools pipe: needs the browser and nothing else.

    with Browser.start() as browser:
        page = browser.open(path, width=375, height=800)

Debian: apt install chromium-headless-shell (or chromium).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe")
# The browser reads its commands from descriptor 3 and answers on 4, which may be taken: moved out of the way first.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
    os.close(end)
os.execv(sys.argv[3], sys.argv[3:])
"""
REMEDY = "no Chromium here: apt install chromium-headless-shell (Debian) or chromium"


def find() -> str | None:
    """Return the browser's path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process; commands are answered in order, events between them are kept."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="browser-")
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), program, *FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            command, pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    @classmethod
    def start(cls) -> Self:
        """Start the browser that is installed."""
        program = find()
        if program is None:
            raise FileNotFoundError(REMEDY)
        return cls(program)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._write)  # the browser ends with its pipe
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._profile.cleanup()

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Give a command and return its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)

    def wait_for(self, method: str) -> dict[str, Any]:
        """Return the next event of a kind, one that came already included."""
        while True:
            for index, event in enumerate(self.events):
                if event.get("method") == method:
                    return self.events.pop(index)
            self.events.append(self._receive())

    def open(self, path: Path, width: int, height: int = 800) -> Page:
        """Open a file in a new page so many CSS pixels wide, and wait until it is loaded."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        self.events.clear()
        page.send("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        return page

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


class Page:
    """One open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command to the page."""
        return self._browser.send(method, self._session, **params)

    def resize(self, width: int, height: int) -> None:
        """Show the page at another width; under 600 pixels as on a phone."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return every error the page has met so far, of its scripts and of what it wanted to load."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found = []
        for event in self._browser.events:
            kind, params = event.get("method"), event.get("params", {})
            if kind == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", {}).get("description", params["exceptionDetails"]["text"])))
            elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
                found.append(str(params["args"]))
            elif kind == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(str(params["entry"]["text"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses of what was asked for, but for what the file holds itself."""
        asked = [event["params"]["request"]["url"] for event in self._browser.events if event.get("method") == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith("data:")]
