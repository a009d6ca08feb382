"""Reproducing papers: what is run at which scale, what is gone on with, and what is said at the end."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from analysis.papers import papers
from testbed import cli, planning, reproducing, runner, spec
from testbed.errors import Refusal
from testbed.planning import Options
from testbed.record import write_json

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def testbed(*arguments):
    done = CliRunner().invoke(cli.app, ["reproduce", *arguments, "--experiments", str(EXPERIMENTS)])
    return done.exit_code, Text.from_ansi(done.stdout).plain, Text.from_ansi(done.stderr).plain


testbed.__test__ = False


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.delenv("TESTBED_RESULTS", raising=False)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_experiment_of_every_paper_can_be_planned_at_either_scale(tmp_path, scale):
    options = Options(tmp_path / "results", sweep=True)
    todo = reproducing.jobs(list(papers().values()), scale, options, EXPERIMENTS, tmp_path)
    schemes = {}
    for job in todo:
        plan = planning.plan_experiment(job.file, job.options)
        assert plan.experiment.name == job.study.experiment
        assert Path(plan.folder) == reproducing.results_of(job.study, options.results, scale)
        schemes[job.study.experiment] = {run.scheme.slug for run in plan.runs}
    assert "netsense" in schemes["netsenseml-paper"] and "dc2" in schemes["dc2-low"]
    assert schemes["3lc-bandwidths"] >= {"3lc-ps", "3lc-ps-1.75", "none-ps"}  # by these names the claims ask for them
    assert ("netsenseml-degrading" in schemes) == (scale == "full")


def test_quick_fits_into_half_an_hour(tmp_path):
    todo = reproducing.jobs(list(papers().values()), "quick", Options(tmp_path, sweep=True), EXPERIMENTS, tmp_path)
    plans = [planning.plan_experiment(job.file, job.options) for job in todo]
    assert sum(plan.duration.seconds for plan in plans) <= 30 * 60
    assert not any(plan.duration.unknown_runs for plan in plans)


def test_repeats_of_an_early_experiment_leave_time_for_the_later_ones(tmp_path):
    todo = reproducing.jobs(list(papers().values()), "quick", Options(tmp_path, sweep=True), EXPERIMENTS, tmp_path)
    plans = [planning.plan_experiment(job.file, job.options) for job in todo]
    held = reproducing.in_time(todo, plans, now_s=1000.0)
    ends_s = [job.options.repeats_end_s for job in held]
    assert ends_s[-1] == 1000 + reproducing.QUICK_S - reproducing.CONCLUDING_S
    between_s = [later - earlier for earlier, later in itertools.pairwise(ends_s)]
    assert between_s == pytest.approx([plan.duration.seconds for plan in plans[1:]])
    assert [replace(job.options, repeats_end_s=None) for job in held] == [job.options for job in todo]


def test_a_shortened_copy_differs_from_its_file_only_in_what_the_study_replaces(tmp_path):
    (paper,) = reproducing.chosen(["dc2"])
    for job in reproducing.jobs([paper], "quick", Options(tmp_path), EXPERIMENTS, tmp_path):
        short, whole = (spec.load(path).model_dump() for path in (job.file, EXPERIMENTS / job.file.name))
        changed = {field for field in whole if short[field] != whole[field]}
        assert changed <= {field.partition(".")[0] for field in job.study.quick}
        assert short["topology"] == whole["topology"]


def test_an_unknown_paper_is_told_with_the_nearest(tmp_path):
    code, _, said = testbed("netsensml")
    assert code == 2
    assert "did you mean netsenseml?" in said
    with pytest.raises(Refusal, match="there are netsenseml, dc2, 3lc"):
        reproducing.chosen(["zzz"])


def test_a_folder_without_the_experiments_is_told_with_the_remedy(tmp_path):
    done = CliRunner().invoke(cli.app, ["reproduce", "dc2", "--experiments", str(tmp_path)])
    assert done.exit_code == 2
    assert "--experiments" in done.stderr


def test_a_dry_run_needs_no_root_and_creates_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, said, _ = testbed("--scale", "quick", "--dry-run")
    assert code == 0
    assert "netsenseml-paper: 0 of 3 runs done" in said and "min in all" in said
    code, said, _ = testbed("3lc", "--dry-run", "--json")
    assert [plan["experiment"] for plan in json.loads(said)] == ["3lc-paper", "3lc-bandwidths"]
    assert not list(tmp_path.iterdir())


def test_the_experiments_are_run_and_the_claims_told_even_if_nothing_could_be_measured(monkeypatch, tmp_path):
    ran = []

    def pretended(file, options, console):
        ran.append(spec.load(file).name)
        folder, runs = options.results / ran[-1], planning.plan_experiment(file, options).runs
        folder.mkdir(parents=True)
        described = {"schema": 1, "name": ran[-1], "spec": spec.resolved(spec.load(file)), "planned": []}
        write_json(folder / "experiment.json", described)
        for run in runs:
            (folder / run.slug).mkdir(parents=True)
            write_json(folder / run.slug / "manifest.json", {"schema": 1, "status": "failed", "valid": False, "reason": "a test"})
        return folder

    monkeypatch.setattr(runner, "run_experiment", pretended)
    code, said, warned = testbed("dc2", "--scale", "quick")
    assert "no time to repeat dc2-paper/none" in warned
    assert ran == ["dc2-paper", "dc2-low", "dc2-high"]
    assert code == 1  # runs failed
    assert "not measured" in said and "dc2-low/" in said
    claims = json.loads((tmp_path / "results/reproduce-quick/reproduction.json").read_text())
    assert {claim["verdict"] for claim in claims} == {"not measured"}


def test_without_runs_it_judges_what_is_there_as_json(tmp_path):
    code, said, _ = testbed("3lc", "--scale", "quick", "--no-run", "--json")
    assert code == 0
    claims = json.loads(said)["claims"]
    assert {claim["paper"] for claim in claims} == {"3lc"}
    assert all("was not run" in text for claim in claims for text in claim["left_out"])


def test_asking_for_one_paper_does_not_make_what_is_known_of_the_others_disappear(tmp_path):
    earlier = tmp_path / "results/reproduce-quick/dc2-low/dc2"
    earlier.mkdir(parents=True)
    write_json(earlier / "manifest.json", {"schema": 1, "status": "failed", "valid": False, "reason": "a test"})
    code, said, _ = testbed("3lc", "--scale", "quick", "--no-run", "--json")
    assert code == 0
    assert {claim["paper"] for claim in json.loads(said)["claims"]} == {"dc2", "3lc"}


def test_results_of_another_version_of_an_experiment_are_not_counted(tmp_path):
    folder = tmp_path / "results/reproduce-quick/3lc-bandwidths"
    (folder / "none-ps").mkdir(parents=True)
    write_json(folder / "none-ps" / "manifest.json", {"schema": 1, "status": "failed", "valid": False, "reason": "a test"})

    def left_out(spec_of_then):
        write_json(folder / "experiment.json", {"schema": 1, "name": "3lc-bandwidths", "spec": spec_of_then, "planned": []})
        code, said, _ = testbed("3lc", "--scale", "quick", "--no-run", "--json")
        assert code == 0
        return " ".join(text for claim in json.loads(said)["claims"] for text in claim["left_out"])

    (job,) = [
        job
        for job in reproducing.jobs(reproducing.chosen(["3lc"]), "quick", Options(tmp_path), EXPERIMENTS, tmp_path)
        if job.study.experiment == "3lc-bandwidths"
    ]
    same = spec.resolved(spec.load(job.file))
    assert "another version" not in left_out(same)
    assert "3lc-bandwidths: " in left_out(same | {"seed": 7}) and "another version" in left_out(same | {"seed": 7})


def test_results_that_cannot_be_read_are_told_with_the_reason(tmp_path):
    (tmp_path / "results/reproduce-quick/3lc-paper").mkdir(parents=True)
    code, said, _ = testbed("3lc", "--scale", "quick", "--no-run", "--json")
    assert code == 0
    left_out = {text for claim in json.loads(said)["claims"] for text in claim["left_out"]}
    assert any(text.startswith("3lc-paper: ") and "3lc-paper" in text.partition(": ")[2] for text in left_out), left_out
    assert "3lc-bandwidths was not run" in left_out
