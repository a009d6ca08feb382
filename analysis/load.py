"""Open a results folder: the experiment, its runs, what is missing and what is damaged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from analysis.errors import ResultsError
from analysis.mixed import strangers
from analysis.run import SCHEMA, Run, dig

if TYPE_CHECKING:
    from analysis.tidy import Frames

T = TypeVar("T")
KINDS: dict[str, type] = {  # of what a manifest says; whatever is of another kind is taken for damage, once, here
    **dict.fromkeys(("spec", "cell", "network", "versions", "verification", "transport", "fidelity", "cpu", "prediction"), dict),
    **dict.fromkeys(("invalid_reasons", "substituted", "paths", "checks", "workers", "notes", "earlier_attempts"), list),
}

__all__ = ["SCHEMA", "Results", "Run", "dig", "load"]


@dataclass(frozen=True)
class Results:
    """An experiment's folder. `runs` are in planned order; what is not there is in `missing` and `problems`."""

    folder: Path
    name: str
    spec: dict[str, Any]
    planned: list[str]
    command: Any
    runs: list[Run]
    unreadable: list[str]  # slugs of runs whose manifest cannot be read
    complaints: list[str]  # about the experiment and the unreadable runs; see `problems`
    file: str | None = None  # the experiment file, word for word
    apart: dict[str, str] = field(default_factory=dict)  # runs that do not compare with the others, and why: it "is of another experiment"
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # see `once`

    @property
    def frames(self) -> Frames:
        """Return the tables of all runs as tidy frames: runs, steps, evals, links, events."""
        from analysis.tidy import Frames  # made of the summary, which is made of this

        return Frames(self)

    def once(self, name: str, work: Callable[[Results], T]) -> T:
        """Return what `work` makes of these runs, worked out again only if what is known of them has changed since."""
        key = (name, *((run.slug, run.status) for run in self.runs))
        if key not in self.kept:
            self.kept[key] = work(self)
        return cast(T, self.kept[key])

    @property
    def missing(self) -> list[str]:
        """Return the planned runs that have no folder."""
        return [slug for slug in self.planned if not (self.folder / slug).is_dir()]

    @property
    def compared(self) -> Results:
        """Return the same without the runs that stand apart: what may be drawn side by side or put into one number."""
        return replace(self, runs=[run for run in self.runs if run.slug not in self.apart])

    @property
    def problems(self) -> list[str]:
        """Return everything that could not be read, a sentence each; grows as tables are read."""
        return self.complaints + [f"run {run.slug}: {text}" for run in self.runs for text in run.damage]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Return the distinct cells in order of appearance; one empty cell when nothing is swept."""
        return list({run.cell_key: run.cell for run in self.runs}.values())

    @property
    def schemes(self) -> dict[str, str]:
        """Return slug and label of each scheme, in order of appearance."""
        return {run.scheme: run.label for run in self.runs}

    @property
    def workloads(self) -> list[str]:
        """Return the kinds of workload present, training first."""
        return sorted({run.workload for run in self.runs}, key=lambda kind: (kind != "train", kind))


def load(folder: Path | str) -> Results:
    """Open a results folder; raise ResultsError only if nothing in it can be used."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder. Give the results folder of an experiment, such as results/quick.")
    if (folder / "manifest.json").is_file():
        raise ResultsError(f"{folder} is one run. Give the experiment's folder, {folder.resolve().parent}.")
    experiment, complaints = _read_experiment(folder)
    planned = [slug for slug in experiment.get("planned") or [] if isinstance(slug, str)]
    others = sorted(path.parent.name for path in folder.glob("*/manifest.json") if path.parent.name not in planned)

    runs: list[Run] = []
    unreadable: list[str] = []
    for slug in dict.fromkeys(planned + others):
        if not (folder / slug).is_dir():
            continue
        manifest, complaint = _read_manifest(folder / slug / "manifest.json")
        if complaint:
            unreadable.append(slug)
            complaints.append(f"run {slug}: {complaint}")
            continue
        odd = [key for key, kind in KINDS.items() if not isinstance(manifest.get(key), kind | None)]
        run = Run(folder / slug, {key: value for key, value in manifest.items() if key not in odd})
        run.check()
        if odd:
            run.damage.append(f"manifest.json says what cannot be read under {', '.join(odd)}")
        runs.append(run)
    if not runs:
        raise ResultsError(_nothing(folder, planned, complaints))
    spec, file = experiment.get("spec"), experiment.get("file")
    names = Counter(str(run.manifest["experiment"]) for run in runs if run.manifest.get("experiment"))
    name = str(experiment.get("name") or next((name for name, _ in names.most_common(1)), folder.name))
    apart = strangers(name, runs)
    return Results(
        folder=folder,
        name=name,
        spec=spec if isinstance(spec, dict) else {},
        planned=planned,
        command=experiment.get("command"),
        runs=runs,
        unreadable=unreadable,
        complaints=[*complaints, *_old(runs), *_mixed(apart, len(runs))],
        file=file if isinstance(file, str) else None,
        apart=apart,
    )


def _read_experiment(folder: Path) -> tuple[dict[str, Any], list[str]]:
    path = folder / "experiment.json"
    if not path.exists():
        return {}, [] if not any(folder.glob("*/manifest.json")) else ["experiment.json is missing, so planned runs are unknown"]
    experiment, complaint = _read_json(path)
    if complaint:
        return {}, [f"{complaint}, so planned runs are unknown"]
    schema = experiment.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ResultsError(
            f"{folder} has schema {schema}; this testbed reads up to {SCHEMA}. Update the testbed, or read it with the newer one."
        )
    return experiment, []


def _read_manifest(path: Path) -> tuple[dict[str, Any], str | None]:
    manifest, complaint = _read_json(path)
    if complaint:
        return {}, complaint
    schema = manifest.get("schema")
    if not isinstance(schema, int) and "scheme" not in manifest:
        return {}, f"{path.name} names neither schema nor scheme, so it is not a run's"
    if isinstance(schema, int) and schema > SCHEMA:
        return {}, f"schema {schema} is newer than this testbed reads ({SCHEMA}); update the testbed"
    return manifest, None


def _read_json(path: Path) -> tuple[dict[str, Any], str | None]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}, f"{path.name} is missing"
    except (OSError, ValueError) as error:
        return {}, f"{path.name} cannot be read ({error})"
    return (data, None) if isinstance(data, dict) else ({}, f"{path.name} does not hold an object")


def _old(runs: list[Run]) -> list[str]:
    old = [run.slug for run in runs if run.is_old]
    return [f"written by an older testbed, what it did not record is left empty: {_few(old)}"] if old else []


def _mixed(apart: dict[str, str], total: int) -> list[str]:
    """Say which runs stand apart, those with the same reason together."""
    said = []
    for why in dict.fromkeys(apart.values()):
        slugs = [slug for slug in apart if apart[slug] == why]
        are, each = ("is", "it") if len(slugs) == 1 else ("are", "each")
        said.append(f"{len(slugs)} of {total} runs {are} not compared with the rest, as {each} {why}: {_few(slugs)}")
    return said


def _few(slugs: list[str], most: int = 5) -> str:
    return ", ".join(slugs[:most]) + (f" and {len(slugs) - most} more" if len(slugs) > most else "")


def _nothing(folder: Path, planned: list[str], complaints: list[str]) -> str:
    if complaints:
        return f"No run in {folder} can be read: {'; '.join(complaints)}. Run the experiment again."
    if planned:
        return f"None of the {len(planned)} planned runs of {folder} has started. Run the experiment first: testbed run."
    if below := sorted(path.parent for path in folder.glob("*/experiment.json")):
        return f"{folder} holds {len(below)} experiment{'s' * (len(below) > 1)}. Give one of them, such as {below[0]}."
    return f"{folder} holds no results. Run an experiment first (testbed run), or give another folder."
