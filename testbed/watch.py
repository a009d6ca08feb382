"""Watch a run while it goes on: its links by the API, its workers and events by what they record. Nothing of the run is touched."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from controller.client import Client, ClientError
from testbed.processes import is_running
from testbed.record import itself, read_json
from testbed.watch_view import EventState, View, WorkerState, end_sentence, render, worker_state

FIRST_LOOK_BYTES = 1 << 16
MOST_ROWS = 2000
MOST_EVENTS = 6
API_TIMEOUT_S = 2.0


class WatchError(RuntimeError):
    """There is nothing to watch; the message has the remedy."""


class Tail:
    """The last rows of a file of JSON lines that grows; only what is new is read."""

    def __init__(self, path: Path) -> None:
        """The file may be missing as yet."""
        self._path = path
        self._file_id, self._offset, self._pending = 0, 0, b""
        self._rows: deque[dict[str, Any]] = deque(maxlen=MOST_ROWS)

    def rows(self) -> list[dict[str, Any]]:
        """Return the last whole rows; of a long file, at first, only those near its end."""
        try:
            with open(self._path, "rb", opener=itself) as file:  # workers choose what has this name
                status = os.fstat(file.fileno())
                if status.st_ino != self._file_id or status.st_size < self._offset:  # the first look, or another attempt's file
                    self._file_id, self._offset, self._pending = status.st_ino, max(0, status.st_size - FIRST_LOOK_BYTES), b""
                    self._rows.clear()
                file.seek(self._offset)
                chunk = file.read()
        except OSError:
            return []
        self._offset += len(chunk)
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:  # the first look may begin within a line
                continue
            if isinstance(row, dict):
                self._rows.append(row)
        return list(self._rows)


class RunReader:
    """Reads one run's folder, again and again."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a manifest."""
        self.folder = folder
        self._client = Client(folder, timeout_s=API_TIMEOUT_S)
        self._tails: dict[Path, Tail] = {}

    def view(self) -> View:
        """Return the run's present state."""
        manifest = read_manifest(self.folder)
        status = run_status(manifest)
        links, no_links = self._links() if status == "running" else ((), None)
        return View(
            experiment=str(manifest.get("experiment", self.folder.parent.name)),
            run=str(manifest.get("run", self.folder.name)),
            scheme=str(manifest.get("scheme_label", "")),
            status=status,
            reason=manifest.get("reason") or "; ".join(manifest.get("invalid_reasons", [])) or None,
            valid=bool(manifest.get("valid")) if status == "complete" else None,
            started=str(manifest.get("started", "")),
            seconds=_since(manifest.get("started")) if status == "running" else None,
            links=links,
            no_links=no_links,
            workers=self._workers(),
            events=self._events(),
            dilation=float(manifest.get("dilation", 1.0)),
        )

    def _links(self) -> tuple[tuple[dict[str, Any], ...], str | None]:
        try:
            return tuple(self._client.links()), None
        except ClientError as error:
            return (), str(error)

    def _workers(self) -> tuple[WorkerState, ...]:
        ranks = {int(rank): path for path in self._stream("steps-*.jsonl") if (rank := path.stem.rpartition("-")[2]).isdecimal()}
        states = (worker_state(rank, self._rows(ranks[rank])) for rank in sorted(ranks))
        return tuple(state for state in states if state is not None)

    def _events(self) -> tuple[EventState, ...]:
        rows = sorted((row for path in self._stream("events-*.jsonl") for row in self._rows(path)), key=lambda row: row["mono_s"])
        now_s = time.monotonic()
        return tuple(EventState(max(0.0, now_s - row["mono_s"]), row["kind"], row["text"]) for row in rows[-MOST_EVENTS:])

    def _stream(self, pattern: str) -> list[Path]:
        return sorted((self.folder / "stream").glob(pattern))

    def _rows(self, path: Path) -> list[dict[str, Any]]:
        return self._tails.setdefault(path, Tail(path)).rows()


def run_status(manifest: dict[str, Any]) -> str:
    """Return a run's status; `killed` where the manifest still says `running` and nobody runs it."""
    status = str(manifest.get("status", "killed"))
    return "killed" if status == "running" and not is_running(manifest.get("runner", {})) else status


def find(where: Path | None, results: Path) -> Path:
    """Return the folder to watch, of a run or of an experiment: the one named, or the newest experiment's."""
    if where is None:
        experiments = {path.parent: path.stat().st_mtime for path in results.glob("*/experiment.json")}
        if not experiments:
            raise WatchError(f"{results}: nothing was run here yet; start with `testbed run`, or name a run's folder")
        return max(experiments, key=lambda folder: experiments[folder])
    for folder in (where, results / where):
        if (folder / "manifest.json").is_file() or (folder / "experiment.json").is_file():
            return folder
    raise WatchError(f"{where}: there is no run and no experiment there; give a folder such as results/quick or one in it")


def run_folder(folder: Path) -> Path | None:
    """Return the run to watch: the folder itself, or of an experiment the run that goes on, else the last; None before the first."""
    if (folder / "manifest.json").is_file():
        return folder
    runs = []
    for path in folder.glob("*/manifest.json"):
        manifest = read_json(path)
        if manifest is not None:
            runs.append((run_status(manifest) == "running", path.stat().st_mtime, path.parent))
    return max(runs)[2] if runs else None


def read_manifest(run: Path) -> dict[str, Any]:
    """Return a run's manifest; one that is missing gets a moment: a run that is done once more makes its folder anew."""
    path = run / "manifest.json"
    content = read_json(path)
    if content is None:
        time.sleep(0.2)
        content = read_json(path)
    return content or {}


def goes_on(folder: Path, run: Path | None) -> bool:
    """Tell whether there is more to see: the run runs, or its experiment's process is there to begin the next."""
    if run is None:
        return True
    manifest = read_manifest(run)
    return run_status(manifest) == "running" or (folder != run and is_running(manifest.get("runner", {})))


def views(folder: Path, interval_s: float = 0.0) -> Iterator[View]:
    """Yield the present state every so often, from run to run of an experiment, until there is no more to come."""
    reader: RunReader | None = None
    while True:
        run = run_folder(folder)
        more = goes_on(folder, run)
        if run is not None:
            if reader is None or reader.folder != run:
                reader = RunReader(run)
            yield reader.view()
        else:
            yield View(folder.name, "", "", "running", None, None, "", None, no_links="no run has begun yet")
        if not more:
            return
        time.sleep(interval_s)


def watch(folder: Path, console: Console, once: bool, as_json: bool, interval_s: float) -> None:
    """Show a run or an experiment until it ends or the user has seen enough."""
    if as_json:
        _follow(folder, once, interval_s, lambda view: print(json.dumps(view.to_json()), flush=True))
    elif once or not console.is_terminal:
        _follow(folder, once, interval_s, lambda view: console.print(render(view)))
    else:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            _follow(folder, once, interval_s, lambda view: _show_live(live, view))


def _show_live(live: Live, view: View) -> None:
    if not view.is_running:
        live.console.print(end_sentence(view))
    live.update(render(view) if view.is_running else "waiting for the next run", refresh=True)


def _follow(folder: Path, once: bool, interval_s: float, show: Callable[[View], None]) -> None:
    ended: tuple[str, str] | None = None
    try:
        for view in views(folder, interval_s):
            now_ended = None if view.is_running else (view.run, view.started)
            if now_ended is None or now_ended != ended:  # an end is told once, however long the next run is waited for
                show(view)
            ended = now_ended
            if once:
                return
    except KeyboardInterrupt:
        return


def _since(started: Any) -> float | None:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(started)).total_seconds()
    except (TypeError, ValueError):
        return None
