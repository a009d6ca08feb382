"""Two runs on one machine: one waits, or both know."""

import pytest

from tests.emulation.experiments import COMPLETE, command, look_at_machine, manifest, start, wait_until, workers_of, write_tiny

pytestmark = pytest.mark.usefixtures("emulation")


def test_the_second_run_waits_for_the_first_and_both_are_whole(tmp_path):
    before = look_at_machine()
    first, second = (write_tiny(tmp_path, name, seconds=3) for name in ("first", "second"))
    one = start(command(first))
    wait_until(lambda: bool(manifest(tmp_path / "results" / "first", "none")), 60, "the first run under way")
    two = start(command(second))
    output_one, output_two = one.communicate(timeout=120)[0], two.communicate(timeout=120)[0]
    assert one.returncode in COMPLETE, output_one
    assert two.returncode in COMPLETE, output_two
    assert "waiting" in output_two
    ended = manifest(tmp_path / "results" / "first", "none")
    begun = manifest(tmp_path / "results" / "second", "none")
    assert begun["started"] >= ended["finished"]
    assert not ended["shared_machine"]
    assert not begun["shared_machine"]
    assert look_at_machine() == before


def test_runs_told_to_share_go_side_by_side_and_are_flagged(tmp_path):
    first, second = (write_tiny(tmp_path, name, seconds=8) for name in ("first", "second"))
    one = start(command(first))
    wait_until(lambda: len(workers_of(tmp_path / "results/first/none")) == 2, 60, "the first run's workers")
    two = start(command(second, "--share"))
    output_one, output_two = one.communicate(timeout=120)[0], two.communicate(timeout=120)[0]
    assert one.returncode in COMPLETE, output_one
    assert two.returncode in COMPLETE, output_two
    first_attempts, second_attempts = (_attempts(tmp_path / "results" / name / "none") for name in ("first", "second"))
    assert second_attempts[0]["started"] < first_attempts[0]["finished"]
    assert any(attempt["shared_machine"] for attempt in first_attempts)
    assert all(attempt["shared_machine"] for attempt in second_attempts)


def _attempts(run):
    """Return the manifests of a run, oldest first: side by side they may spoil each other, and one is then done once more, by itself."""
    return [told for told in (manifest(run, "earlier"), manifest(run.parent, run.name)) if told]
