"""Gather what the report says, in words: nothing here knows of HTML."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from analysis import words
from analysis.figures import FIGURES
from analysis.load import Results
from analysis.report.read import bare, mapping, mappings, plain
from analysis.report.runs import RunPart, run_parts
from analysis.report.series import Group, groups
from analysis.report.tables import Table, summary_table
from analysis.style import SchemeStyle, scheme_styles

CHANGED = "-dirty"  # behind a commit: the tree was not quite that
WHEN = ("at_s", "at_step", "from_s", "until_s", "for_s", "every_s")
WORDS_OF_WHEN = {"at_s": "at", "at_step": "before step", "from_s": "from", "until_s": "until", "for_s": "for", "every_s": "every"}


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn."""

    name: str
    title: str
    about: str
    path: Path


@dataclass(frozen=True)
class Page:
    """Everything the report says."""

    name: str
    description: str
    made: str  # when this report was
    when: str  # the runs were
    networks: list[str]
    counts: str
    all_valid: bool
    not_valid: list[tuple[str, str, str]]  # anchor, run, why; missing ones without an anchor
    problems: list[str]
    caveats: list[str]
    styles: dict[str, SchemeStyle]
    table: Table
    csv: str
    pictures: list[Picture]
    skipped: list[tuple[str, str]]  # figure, reason
    groups: list[Group]
    conditions: list[tuple[str, str]]  # when, what
    runs: list[RunPart]
    file: str | None  # the experiment file, word for word
    resolved: str  # the same with every default, SI units
    recipe: list[str]  # commands
    recipe_limits: list[str]  # why they do not do quite the same again
    machine: list[tuple[str, str]]


def gather(results: Results, rows: pd.DataFrame, pictures: dict[str, Path], skipped: dict[str, str], problems: list[str]) -> Page:
    """Gather the page of an experiment from its results, its summary and its figures."""
    styles = scheme_styles(results.schemes)
    by_run: dict[str, dict[Any, Any]] = {str(row["run"]): row for row in rows.to_dict("records")}
    viewer = groups(results, styles)
    parts = run_parts(results, by_run)
    first = results.runs[0].manifest
    return Page(
        name=results.name,
        description=str(results.spec.get("description") or mapping(first.get("spec")).get("description") or ""),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}",
        when=_when(results),
        networks=list(dict.fromkeys(words.network_words(run) for run in results.runs)),
        counts=_counts(results),
        all_valid=not results.missing and not results.unreadable and all(run.valid for run in results.runs),
        not_valid=_not_valid(results, parts),
        problems=problems,
        caveats=words.small_print(results, results.runs)[1:],
        styles=styles,
        table=summary_table(results, rows, {part.slug: part.anchor for part in parts}),
        csv=rows.to_csv(index=False, float_format="%.6g"),
        pictures=[Picture(name, FIGURES[name].title, FIGURES[name].about, path) for name, path in pictures.items()],
        skipped=[(FIGURES[name].title, reason) for name, reason in skipped.items()],
        groups=viewer,
        conditions=[_condition(each) for each in mappings(results.spec.get("conditions") or mapping(first.get("spec")).get("conditions"))],
        runs=parts,
        file=results.file,
        resolved=yaml.safe_dump(results.spec or mapping(first.get("spec")), sort_keys=False, allow_unicode=True, width=120),
        recipe=_recipe(results),
        recipe_limits=_recipe_limits(results),
        machine=_machine(results),
    )


def _counts(results: Results) -> str:
    """Say how many runs there are and how they stand."""
    kinds = {
        "valid": sum(run.valid for run in results.runs),
        "not valid": sum(run.complete and not run.valid for run in results.runs),
        "incomplete or damaged": sum(not run.complete for run in results.runs) + len(results.unreadable),
        "missing": len(results.missing),
    }
    total = sum(kinds.values())
    return f"{total} run{'s' * (total != 1)}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)


def _not_valid(results: Results, parts: list[RunPart]) -> list[tuple[str, str, str]]:
    listed = [(part.anchor, part.slug, "; ".join(part.reasons)) for part in parts if not part.valid]
    listed += [("", slug, "its manifest cannot be read") for slug in results.unreadable]
    return listed + [("", slug, "planned, and not there") for slug in results.missing]


def _when(results: Results) -> str:
    began, ended = (sorted(str(run.manifest[key]) for run in results.runs if run.manifest.get(key)) for key in ("started", "finished"))
    if not began:
        return "at an unknown time"
    try:
        first = datetime.fromisoformat(began[0])
        last = datetime.fromisoformat(ended[-1]) if ended else first
    except ValueError:
        return began[0]
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'} %Z}"


def _condition(condition: dict[str, Any]) -> tuple[str, str]:
    """Say when something happens to the network, and what."""
    known = {key: value for key, value in condition.items() if value is not None}
    when = " ".join(f"{WORDS_OF_WHEN[key]} {plain(key, known[key])}" for key in WHEN if key in known) or "throughout"
    what = [f"{bare(key)} {plain(key, value)}" for key, value in known.items() if key not in (*WHEN, "link", "direction")]
    where = [str(known["link"])] if "link" in known else []
    way = str(known.get("direction", "both"))
    return when, " ".join([*where, *([way] if way != "both" else []), ", ".join(what)])


def _recipe(results: Results) -> list[str]:
    """Return the commands that do it again: the code as it was, the file as it was."""
    commits = _distinct(results, "git_commit")
    command = results.command if isinstance(results.command, str) else shlex.join(map(str, results.command or []))
    verb = "sweep" if " sweep " in f" {command} " else "run"
    lines = [f"git checkout {commits[0].removesuffix(CHANGED)}"] if commits else []
    return [*lines, "make setup", f"sudo .venv/bin/testbed {verb} {shlex.quote(results.name)}.yaml"]


def _recipe_limits(results: Results) -> list[str]:
    """Say what a checkout of the first run's commit does not bring back: other commits, changes that were in none."""
    commits = Counter(str(run.manifest["git_commit"]) for run in results.runs if run.manifest.get("git_commit") is not None)
    clean = dict.fromkeys(commit.removesuffix(CHANGED) for commit in commits)
    changed = sum(count for commit, count in commits.items() if commit.endswith(CHANGED))
    said = [f"The runs are of {len(clean)} commits ({', '.join(clean)}); this is the first run's."] * (len(clean) > 1)
    said += [f"{changed} of {len(results.runs)} runs had changes that were not committed: a checkout is without them."] * (changed > 0)
    return said


def _machine(results: Results) -> list[tuple[str, str]]:
    """Return what the runs ran on and with; several values where runs differ."""
    command = results.command if isinstance(results.command, str) else shlex.join(map(str, results.command or []))
    found = [
        ("Command", command),
        ("Git commit", ", ".join(_distinct(results, "git_commit"))),
        ("Kernel", ", ".join(_distinct(results, "kernel"))),
        ("CPUs", ", ".join(_distinct(results, "cpus"))),
        (
            "In place of what the machine lacks",
            "; ".join(dict.fromkeys(text for run in results.runs for text in _substituted(run.manifest))),
        ),
    ]
    versions: dict[str, dict[str, None]] = {}
    for run in results.runs:
        for package, version in mapping(run.manifest.get("versions")).items():
            versions.setdefault(str(package), {})[str(version)] = None
    found += [(package, ", ".join(each)) for package, each in versions.items()]
    transport = mapping(results.runs[0].manifest.get("transport"))
    found.append(("Transport", ", ".join(f"{key} {' '.join(str(value).split())}" for key, value in transport.items())))
    return [(name, value) for name, value in found if value]


def _distinct(results: Results, key: str) -> list[str]:
    return list(dict.fromkeys(str(run.manifest[key]) for run in results.runs if run.manifest.get(key) is not None))


def _substituted(manifest: dict[str, Any]) -> list[str]:
    value = manifest.get("substituted")
    return [str(each) for each in value] if isinstance(value, list) else []
