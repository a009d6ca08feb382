"""Two runs on one machine: one waits, or both know."""

import pytest

from tests.emulation.experiments import command, look_at_machine, manifest, start, wait_until, workers_of, write_tiny

pytestmark = pytest.mark.usefixtures("emulation")


def test_the_second_run_waits_for_the_first_and_both_are_whole(tmp_path):
    before = look_at_machine()
    first, second = (write_tiny(tmp_path, name, seconds=3) for name in ("first", "second"))
    one = start(command(first))
    wait_until(lambda: bool(manifest(tmp_path / "results" / "first", "none")), 60, "the first run under way")
    two = start(command(second))
    output_one, output_two = one.communicate(timeout=120)[0], two.communicate(timeout=120)[0]
    assert one.returncode == 0, output_one
    assert two.returncode == 0, output_two
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
    assert one.returncode == 0, output_one
    assert two.returncode == 0, output_two
    told = [manifest(tmp_path / "results" / name, "none") for name in ("first", "second")]
    assert told[1]["started"] < told[0]["finished"]
    assert told[0]["shared_machine"]
    assert told[1]["shared_machine"]
