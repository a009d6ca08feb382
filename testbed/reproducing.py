"""Reproduce papers: run what is missing of the experiments that stand for theirs, then hold their claims against the results."""

from __future__ import annotations

import difflib
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

import analysis
from analysis.load import Results
from analysis.papers import Paper, hold, papers, write
from analysis.papers.claims import Finding, Study
from analysis.papers.table import rows
from testbed import disk, spec
from testbed.errors import Refusal
from testbed.ownership import give_to_caller
from testbed.planning import SWEEP_REMEDY, Options, plan_experiment
from testbed.record import read_json
from testbed.schedule import Schedule
from testbed.spec.loading import put

HEADINGS = {
    "quick": "Made by `make reproduce SCALE=quick`, or by `testbed reproduce PAPER --scale quick`: short runs, one seed.",
    "full": "Made by `make reproduce`, or by `testbed reproduce PAPER`.",
}
QUICK_S = 30 * 60.0  # of a whole command
CONCLUDING_S = 2 * 60.0  # of that, for tables, figures and reports, and for waiting until the machine is calm


@dataclass(frozen=True)
class Job:
    """One experiment to run: its file, and where its results go."""

    study: Study
    file: Path
    options: Options


@dataclass(frozen=True)
class Conclusion:
    """What became of the claims, and what was written of it."""

    findings: list[Finding]
    folder: Path
    paths: list[Path]
    complaints: list[str]  # of reports that could not be written

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
    inside = options if scale == "full" else replace(options, results=home(options.results, scale))
    return [Job(study, _file(study, scale, experiments, copies), inside) for study in studies.values()]


def in_time(todo: list[Job], plans: list[Schedule], now_s: float) -> list[Job]:
    """Hold a quick reproduction to its time: what is due comes first, and invalid runs are repeated in what is left of half an hour.

    Those that are not stay due, so that the same command, given again, repeats them.
    """
    end_s = now_s + QUICK_S - CONCLUDING_S
    later_s = [sum(plan.duration.seconds for plan in plans[number:]) for number in range(1, len(plans) + 1)]
    return [replace(job, options=replace(job.options, repeats_end_s=end_s - after_s)) for job, after_s in zip(todo, later_s, strict=True)]


def still_due(todo: list[Job]) -> list[str]:
    """Name the runs that the same command would run, or repeat."""
    plans = [plan_experiment(job.file, job.options) for job in todo]
    return [f"{plan.experiment.name}/{run.slug}" for plan in plans for run in plan.in_state("due")]


def home(results: Path, scale: str) -> Path:
    """Return where the tables of a scale go."""
    return results / f"reproduce-{scale}"


def results_of(study: Study, results: Path, scale: str) -> Path:
    """Return where the results of a study go: shortened experiments are kept apart from whole ones."""
    return (results if scale == "full" else home(results, scale)) / study.experiment


def plan_words(plans: list[Schedule]) -> list[str]:
    """Say the plan, a line an experiment, and how long it all takes; nothing without one."""
    if not plans:
        return []
    lines = [
        f"{plan.experiment.name}: {len(plan.in_state('done'))} of {len(plan.runs)} runs done; {plan.duration.words()}" for plan in plans
    ]
    due_s = sum(plan.duration.seconds for plan in plans)
    return [*lines, f"about {due_s / 60:.0f} min in all" if due_s else "nothing is missing"]


def conclude(asked: list[Paper], results: Path, scale: str, files: Path) -> Conclusion:
    """Hold claims against whatever results there are; write tables, figure and the reports of the asked papers' experiments.

    The table is of all papers that were asked for or have results from earlier: asking for one does not make the others' disappear.
    Results of another version of an experiment than that in the folder `files` are not counted.
    """
    folder = home(results, scale)
    where = {study.experiment: results_of(study, results, scale) for paper in papers().values() for study in paper.studies}
    specs = _specs([study for paper in papers().values() for study in paper.studies], scale, files)
    experiments: dict[str, Results] = {}
    unreadable: dict[str, str] = {}
    complaints: list[str] = []
    with disk.watched(folder):
        for name, place in where.items():
            if not place.is_dir():
                continue
            try:
                _refuse_other_version(place, specs.get(name))
                experiments[name] = analysis.load(place)
            except (Refusal, analysis.ResultsError) as error:
                unreadable[name] = str(error)
        for name in [study.experiment for paper in asked for study in paper.studies if study.experiment in experiments]:
            try:
                analysis.write_report(where[name])
            except analysis.ResultsError as error:
                complaints.append(str(error))
            give_to_caller(where[name])
        told = [paper for paper in papers().values() if paper in asked or any(study.experiment in experiments for study in paper.studies)]
        narrowed = [study.experiment for paper in told for study in paper.studies if scale == "quick" and study.narrows]
        findings = [finding for paper in told for finding in hold(paper, experiments, unreadable, narrowed)]
        paths = write(findings, folder, HEADINGS[scale])
    give_to_caller(folder)
    return Conclusion(findings, folder, paths, complaints)


def show(concluded: Conclusion, console: Console) -> None:
    """Print the claims and what became of them."""
    table = Table("claim", "published", "ours", "ratio", "verdict", box=None, padding=(0, 1))
    for finding, row in zip(concluded.findings, concluded.rows, strict=True):
        published = finding.claim.published_words
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        why = "" if row["verdict"] == "reproduced" else f"\n  [dim]why: {row['differs']}[/dim]"
        table.add_row(f"{row['paper']}: {row['says']}\n  {row['how']}{why}", published, row["ours"], ratio, row["verdict"])
    console.print(table)
    for text in dict.fromkeys(text for finding in concluded.findings for text in finding.left_out):
        console.print(f"not counted: {text}", style="yellow", soft_wrap=True)
    for text in concluded.complaints:
        console.print(text, style="yellow", soft_wrap=True)
    for path in concluded.paths:
        console.print(str(path), soft_wrap=True, highlight=False)


def _specs(studies: list[Study], scale: str, files: Path) -> dict[str, Any]:
    """Return what the experiments of these studies ask for now; nothing of one whose file is not there, or cannot be read."""
    found = {}
    with tempfile.TemporaryDirectory() as copies:
        for study in studies:
            with suppress(OSError, yaml.YAMLError, spec.SpecError):
                found[study.experiment] = spec.resolved(spec.load(_file(study, scale, files, Path(copies))))
    return found


def _refuse_other_version(folder: Path, asked: dict[str, Any] | None) -> None:
    stored = (read_json(folder / "experiment.json") or {}).get("spec")
    if None not in (stored, asked) and stored != asked:
        raise Refusal(f"{folder} holds another version of this experiment: {SWEEP_REMEDY}")


def _file(study: Study, scale: str, files: Path, copies: Path) -> Path:
    """Return the experiment's file, at scale `quick` a shortened copy."""
    path = files / f"{study.experiment}.yaml"
    return path if scale == "full" else _shortened(path, study, copies)


def _shortened(path: Path, study: Study, folder: Path) -> Path:
    """Write the experiment with what its study replaces at scale `quick`; the same every time, so that it can be gone on with."""
    data: dict[str, Any] = yaml.safe_load(path.read_text())
    for field, value in (study.quick or {}).items():
        data = put(data, field.split("."), value)
    said = f"# {path.name}, shortened by `testbed reproduce --scale quick`: {', '.join(study.quick or {})} replaced.\n\n"
    short = folder / path.name
    short.write_text(said + yaml.safe_dump(data, sort_keys=False))
    return short
