"""Limits on processors: where the groups are, what is written into them, and that they are removed whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.emulation import cpulimits
from testbed.emulation.cpulimits import PREFIX, CpuGroups, CpuLimitError, Tree, problems, reap, tree
from testbed.processes import this_process

ROOT = Path(__file__).parents[4]
DEAD = f"{PREFIX}-{os.getpid()}-1-0"  # this process's number, but of another that had it before


def mounted(folder: Path, *lines: str) -> Path:
    """Write a mountinfo with these (place, kind, options)."""
    path = folder / "mountinfo"
    path.write_text("".join(f"30 23 0:26 / {place} rw,relatime shared:9 - {kind} {kind} rw,{options}\n" for place, kind, options in lines))
    return path


def unified(folder: Path, controllers: str = "cpuset cpu io", switched_on: str = "cpu io") -> Path:
    """Make a machine with control groups of version 2."""
    root = folder / "unified"
    root.mkdir()
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text(switched_on)
    return mounted(folder, (root, "cgroup2", "nsdelegate"))


def legacy(folder: Path) -> Path:
    """Make a machine with control groups of version 1, and of version 2 without CPU beside them."""
    (folder / "cpu").mkdir()
    (folder / "unified").mkdir()
    return mounted(
        folder, (folder / "unified", "cgroup2", "x"), (folder / "cpuset", "cgroup", "cpuset"), (folder / "cpu", "cgroup", "cpu,cpuacct")
    )


def test_the_kernels_older_way_is_used_where_it_has_the_cpu(tmp_path):
    assert tree(legacy(tmp_path)) == Tree(tmp_path / "cpu", 1)


def test_the_newer_way_is_used_where_there_is_no_older(tmp_path):
    assert tree(unified(tmp_path)) == Tree(tmp_path / "unified", 2)


@pytest.mark.parametrize(
    ("controllers", "switched_on", "sentence"),
    [
        ("memory io", "", "has no control groups for CPU: leave cpus out"),
        ("cpu memory", "memory", r"as root `echo \+cpu > .*/unified/cgroup.subtree_control` does so"),
    ],
)
def test_where_groups_cannot_limit_the_remedy_is_told(tmp_path, controllers, switched_on, sentence):
    with pytest.raises(CpuLimitError, match=sentence):
        tree(unified(tmp_path, controllers, switched_on))


def test_without_any_control_groups_the_remedy_is_told(tmp_path):
    with pytest.raises(CpuLimitError, match="slowdown, which needs no control groups"):
        tree(mounted(tmp_path, ("/", "ext4", "rw")))


@pytest.mark.parametrize(
    ("cpus", "dilation", "period_us", "quota_us"),
    [(0.5, 1.0, 100_000, 50_000), (2.0, 1.0, 100_000, 200_000), (0.5, 5.0, 500_000, 50_000), (0.5, 20.0, 1_000_000, 25_000)],
)
def test_a_limit_is_a_share_of_the_experiments_time(tmp_path, cpus, dilation, period_us, quota_us):
    Tree(tmp_path, 1).limit(tmp_path, cpus, dilation)
    assert (tmp_path / "cpu.cfs_period_us").read_text() == str(period_us)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == str(quota_us)
    Tree(tmp_path, 2).limit(tmp_path, cpus, dilation)
    assert (tmp_path / "cpu.max").read_text() == f"{quota_us} {period_us}"


def test_how_long_a_group_was_held_back_is_read_both_ways(tmp_path):
    (tmp_path / "cpu.stat").write_text("nr_periods 40\nnr_throttled 10\nthrottled_time 2500000000\n")
    assert Tree(tmp_path, 1).throttled_s(tmp_path) == 2.5
    (tmp_path / "cpu.stat").write_text("usage_usec 7\nnr_throttled 10\nthrottled_usec 1500000\n")
    assert Tree(tmp_path, 2).throttled_s(tmp_path) == 1.5


def test_without_a_limit_nothing_is_made_and_no_groups_are_needed(tmp_path):
    with CpuGroups([None, None], 1.0, mounted(tmp_path)) as groups:
        assert groups.paths == [None, None]
        assert groups.report() == []
    assert problems([None, None]) == []


def emptied(folder: Path) -> None:
    """Remove the files that a real control group would not keep a folder by."""
    for file in list(folder.rglob("*")):
        if file.is_file() and file.parent.name.startswith(("worker-", PREFIX)):
            file.unlink()


def test_every_limited_worker_has_a_group_for_as_long_as_the_run_lasts(tmp_path):
    me = this_process()
    with CpuGroups([0.5, None, 2.0], 1.0, legacy(tmp_path)) as groups:
        (folder,) = (tmp_path / "cpu").glob(f"{PREFIX}-{me['pid']}-{me['started']}-*")
        assert groups.paths == [str(folder / "worker-0"), None, str(folder / "worker-2")]
        assert (folder / "worker-2" / "cpu.cfs_quota_us").read_text() == "200000"
        for rank in (0, 2):
            (folder / f"worker-{rank}" / "cpu.stat").write_text(f"throttled_time {rank + 1}000000000\n")
        assert groups.report() == [{"worker": 0, "cpus": 0.5, "throttled_s": 1.0}, {"worker": 2, "cpus": 2.0, "throttled_s": 3.0}]
        emptied(tmp_path)
    assert list((tmp_path / "cpu").iterdir()) == []


def test_groups_are_removed_when_the_runner_is_killed(tmp_path):
    mounts = legacy(tmp_path)
    code = f"""
import sys, time
from pathlib import Path
from testbed.emulation.cpulimits import CpuGroups
with CpuGroups([0.5], 1.0, Path({str(mounts)!r})) as groups:
    print(groups.paths[0], flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        group = Path(process.stdout.readline().strip())
        assert group.is_dir()
        os.killpg(process.pid, signal.SIGKILL)  # whatever else is in its session too
    assert group.is_dir()  # it is not empty yet
    emptied(tmp_path)
    deadline = time.monotonic() + 10
    while group.parent.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_only_groups_of_runs_that_are_gone_are_reaped(tmp_path):
    me = this_process()
    for name in (DEAD, f"{PREFIX}-{me['pid']}-{me['started']}-0", f"{PREFIX}-mine", "somebody-else"):
        (tmp_path / name / "worker-0").mkdir(parents=True)
    (told,) = reap(Tree(tmp_path, 1))
    assert told == f"{tmp_path / DEAD}: removed, the run it limited was killed"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{PREFIX}-{me['pid']}-{me['started']}-0", f"{PREFIX}-mine", "somebody-else"]
    )
    assert list(reap(Tree(tmp_path, 1))) == []


def test_a_group_that_still_has_processes_is_left(tmp_path):
    (tmp_path / DEAD / "worker-0" / "busy").mkdir(parents=True)
    assert list(reap(Tree(tmp_path, 1))) == []
    assert (tmp_path / DEAD / "worker-0").is_dir()


def test_a_group_that_cannot_be_made_leaves_none_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(Tree, "limit", lambda *given: (_ for _ in ()).throw(PermissionError("read-only")))
    with pytest.raises(PermissionError), CpuGroups([0.5, 0.5], 1.0, legacy(tmp_path)):
        pytest.fail("never begun")
    assert list((tmp_path / "cpu").iterdir()) == []


def test_what_speaks_against_a_limit_is_told_before_anything_starts(monkeypatch):
    def lacking() -> Tree:
        raise CpuLimitError("no groups: leave cpus out")

    monkeypatch.setattr(cpulimits, "tree", lambda mounts=None: lacking())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert problems([None, 0.5]) == ["cpus: no groups: leave cpus out"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert problems([None, 0.5]) == []  # that root is needed is told already
