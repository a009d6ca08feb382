"""Reproduce papers: run what is missing of the experiments that stand for theirs, then hold their claims against the results."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

import analysis
from analysis.papers import Paper, hold, papers, write
from analysis.papers.claims import Finding, Study
from analysis.papers.table import rows
from testbed import disk
from testbed.errors import Refusal
from testbed.ownership import give_to_caller
from testbed.planning import Options
from testbed.schedule import Schedule
from testbed.spec.loading import put

HEADINGS = {
    "quick": "Made by `make reproduce SCALE=quick`: short runs, one seed.",
    "full": "Made by `make reproduce`.",
}


@dataclass(frozen=True)
class Job:
    """One experiment to run: its file, and where its results go."""

    study: Study
    file: Path
    options: Options

    @property
    def folder(self) -> Path:
        """Return its results folder."""
        return self.options.results / self.study.experiment


@dataclass(frozen=True)
class Conclusion:
    """What became of the claims, and what was written of it."""

    findings: list[Finding]
    folder: Path
    paths: list[Path]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return one plain row a claim."""
        return rows(self.findings)


def chosen(names: list[str]) -> list[Paper]:
    """Return the papers asked for, all without a name."""
    known = papers()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise Refusal(f"no paper is named {name!r}: {hint} Another joins with one file in analysis/papers/")
    return [known[name] for name in dict.fromkeys(names or known)]


def jobs(asked: list[Paper], scale: str, options: Options, experiments: Path, copies: Path) -> list[Job]:
    """Return the experiments of these papers, each once. At scale `quick` they are shortened copies, written to the folder for these."""
    studies = {study.experiment: study for paper in asked for study in paper.studies if scale == "full" or study.quick is not None}
    if lacking := [name for name in studies if not (experiments / f"{name}.yaml").is_file()]:
        raise Refusal(f"{experiments} has no {', '.join(f'{name}.yaml' for name in lacking)}: give the folder by --experiments")
    if scale == "full":
        return [Job(study, experiments / f"{name}.yaml", options) for name, study in studies.items()]
    inside = replace(options, results=home(options.results, scale))
    return [Job(study, _shortened(experiments / f"{name}.yaml", study, copies), inside) for name, study in studies.items()]


def home(results: Path, scale: str) -> Path:
    """Return where the tables of a scale go."""
    return results / f"reproduce-{scale}"


def plan_words(plans: list[Schedule]) -> list[str]:
    """Say the plan, a line an experiment, and how long it all takes; nothing without one."""
    if not plans:
        return []
    lines = [
        f"{plan.experiment.name}: {len(plan.in_state('done'))} of {len(plan.runs)} runs done; {plan.duration.words()}" for plan in plans
    ]
    due_s = sum(plan.duration.seconds for plan in plans)
    return [*lines, f"about {due_s / 60:.0f} min in all" if due_s else "nothing is missing"]


def conclude(asked: list[Paper], todo: list[Job], results: Path, scale: str) -> Conclusion:
    """Hold the papers' claims against whatever results there are; write tables, figure and the experiments' reports."""
    folder, experiments = home(results, scale), {}
    with disk.watched(folder):
        for job in todo:
            try:
                analysis.write_report(job.folder)
                experiments[job.study.experiment] = analysis.load(job.folder)
            except analysis.ResultsError:
                continue  # the claims say which experiments were not run
            give_to_caller(job.folder)
        findings = [finding for paper in asked for finding in hold(paper, experiments)]
        paths = write(findings, folder, HEADINGS[scale])
    give_to_caller(folder)
    return Conclusion(findings, folder, paths)


def show(concluded: Conclusion, console: Console) -> None:
    """Print the claims and what became of them."""
    table = Table("claim", "published", "ours", "ratio", "verdict", box=None, padding=(0, 1))
    for row in concluded.rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        published = f"{row['published']} ({row['standing']})"
        table.add_row(f"{row['paper']}: {row['says']}\n  {row['how']}", published, row["ours"], ratio, row["verdict"])
    console.print(table)
    for text in dict.fromkeys(text for finding in concluded.findings for text in finding.left_out):
        console.print(f"not counted: {text}", style="yellow", soft_wrap=True)
    for path in concluded.paths:
        console.print(str(path), soft_wrap=True, highlight=False)


def _shortened(path: Path, study: Study, folder: Path) -> Path:
    """Write the experiment with what its study replaces at scale `quick`; the same every time, so that it can be gone on with."""
    data: dict[str, Any] = yaml.safe_load(path.read_text())
    for field, value in (study.quick or {}).items():
        data = put(data, field.split("."), value)
    said = f"# {path.name}, shortened by `testbed reproduce --scale quick`: {', '.join(study.quick or {})} replaced.\n\n"
    short = folder / path.name
    short.write_text(said + yaml.safe_dump(data, sort_keys=False))
    return short
