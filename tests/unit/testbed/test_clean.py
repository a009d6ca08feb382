"""Cleaning marks what was killed and touches nothing else."""

from __future__ import annotations

import pytest

from testbed.clean import clean
from testbed.processes import this_process
from testbed.record import read_json, write_json


@pytest.fixture(autouse=True)
def no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")


@pytest.fixture
def write(tmp_path):
    def write(run: str, status: str, runner: dict | None):
        path = tmp_path / "quick" / run / "manifest.json"
        path.parent.mkdir(parents=True)
        write_json(
            path, {"run": run, "status": status, "reason": None, "valid": status == "complete"} | ({"runner": runner} if runner else {})
        )
        return path

    return write


DEAD = {**this_process(), "started": 1}
OF_ANOTHER_BOOT = {**this_process(), "boot": "another"}
ELSEWHERE = {**DEAD, "pid_namespace": 1}  # in a container, or on the machine of this one


@pytest.mark.parametrize("runner", [DEAD, OF_ANOTHER_BOOT, None])
def test_a_run_whose_runner_is_gone_is_marked_as_killed(write, tmp_path, runner):
    path = write("none", "running", runner)
    sentences = list(clean(tmp_path))
    manifest = read_json(path)
    assert (manifest["status"], manifest["reason"], manifest["valid"]) == ("failed", "killed before it ended", False)
    assert manifest["invalid_reasons"] == ["the run was killed"]
    assert manifest["run"] == "none"
    assert len(sentences) == 1
    assert str(path.parent) in sentences[0]
    assert list(clean(tmp_path)) == []


@pytest.mark.parametrize(("status", "runner"), [("running", this_process()), ("running", ELSEWHERE), ("complete", DEAD), ("failed", DEAD)])
def test_a_living_a_complete_and_a_failed_run_are_left_as_they_are(write, tmp_path, status, runner):
    path = write("none", status, runner)
    (path.parent / ".steps.parquet.new").write_text("half")
    before = path.read_bytes()
    assert list(clean(tmp_path)) == []
    assert path.read_bytes() == before
    assert (path.parent / ".steps.parquet.new").exists()


def test_what_a_killed_run_had_half_written_is_removed_and_what_it_recorded_stays(write, tmp_path):
    path = write("none", "running", DEAD)
    half, whole, stream = path.parent / ".steps.parquet.new", path.parent / "links.parquet", path.parent / "stream" / "steps-0.jsonl"
    stream.parent.mkdir()
    for file in (half, whole, stream):
        file.write_text("rows")
    assert any(str(half) in sentence for sentence in clean(tmp_path))
    assert (half.exists(), whole.exists(), stream.exists()) == (False, True, True)


def test_a_damaged_manifest_and_a_missing_folder_are_passed_over(tmp_path):
    (tmp_path / "quick" / "none").mkdir(parents=True)
    (tmp_path / "quick" / "none" / "manifest.json").write_text('{"status": "runn')
    assert list(clean(tmp_path)) == []
    assert list(clean(tmp_path / "nowhere")) == []


def test_the_socket_of_a_killed_run_and_what_leads_to_it_are_removed(write, tmp_path):
    run = write("none", "running", DEAD).parent
    (run / "stream").mkdir()
    (run / "api.sock").touch()
    (run / "stream" / "api.sock").symlink_to("../api.sock")
    list(clean(tmp_path))
    assert {path.name for path in run.rglob("*")} == {"manifest.json", "stream"}
