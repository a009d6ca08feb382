"""An experiment's results folder: made, kept, or renamed away; and what its runs left in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.attempts import Standing
from testbed.errors import Refusal
from testbed.processes import is_running, this_process
from testbed.record import ASIDE, SCHEMA, read_json, write_json
from testbed.spec import Experiment, resolved
from testbed.sweep import Run


def description(experiment: Experiment, planned: list[Run], file: Path, command: str) -> dict[str, Any]:
    """Return what a results folder says of its experiment."""
    return {
        "schema": SCHEMA,
        "name": experiment.name,
        "spec": resolved(experiment),
        "file": file.read_text(),
        "planned": [run.slug for run in planned],
        "command": command,
    }


def refuse_other(folder: Path, spec: dict[str, Any], remedy: str) -> None:
    """Refuse a folder that holds runs of another experiment, or of another version of this one."""
    description = folder / "experiment.json"
    if not description.exists() and not any(folder.glob("*/manifest.json")):  # nothing as yet, or killed before anything was
        return
    if (read_json(description) or {}).get("spec") != spec:
        raise Refusal(f"{folder} holds another version of this experiment: {remedy}")


def rename_away(folder: Path, tell: Callable[[str], None]) -> None:
    """Keep an earlier results folder under another name."""
    if folder.exists():
        kept = _free_name(folder)
        folder.rename(kept)
        tell(f"the earlier results are kept in {kept}")


def describe(folder: Path, content: dict[str, Any], anew: bool) -> None:
    """Write the experiment's description; unless `anew`, only where there is none, as others may be at work in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if anew or not (folder / "experiment.json").exists():
        write_json(folder / "experiment.json", content)


def manifests(run_dir: Path) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return a run's manifest, and that of its attempt before if a kill left it without one of its own."""
    own = read_json(run_dir / "manifest.json")
    if own is not None:
        return own, None
    before = (run_dir.with_name(ASIDE.format(run_dir.name)), run_dir / "earlier")
    return None, next((manifest for path in before if (manifest := read_json(path / "manifest.json")) is not None), None)


def passed_over(run_dir: Path, stands: Standing) -> tuple[str, str] | None:
    """Say why a run is not to be done now, and in which colour; None if it is."""
    found = manifests(run_dir)[0] or {}
    runner = found.get("runner", {}) if found.get("status") == "running" else {}
    if runner and runner != this_process() and is_running(runner):
        return "another process is at it", "yellow"
    if stands.state == "left":
        return "failed twice and left as it is; --retry tries it again", "yellow"
    return ("already there", "dim") if stands.state == "done" else None


def _free_name(folder: Path) -> Path:
    """Name an earlier results folder by when it was made."""
    made = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
    name = f"{folder.name}.{made:%Y%m%dT%H%M%S}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(path for name in names if not (path := folder.with_name(name)).exists())
