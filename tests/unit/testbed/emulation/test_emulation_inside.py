"""The inside of a sandbox, without one: when what is written."""

from __future__ import annotations

from types import SimpleNamespace

from testbed.emulation.inside import Inside

REPLAY = {"kind": "replay", "model": "small_cnn", "compute": "1ms", "budget": {"steps": 1}}


def test_every_job_is_written_before_the_first_worker_starts_and_may_write_too(tmp_path):
    started = []

    class Workers:
        def device(self, rank):
            return "cpu"

        def start(self, rank, job, netns_pid):
            started.append((rank, job.name, netns_pid, sorted(path.name for path in tmp_path.iterdir())))

    hosts = ("h1", "h2")
    inside = Inside.__new__(Inside)
    inside.stream, inside.workers = tmp_path, Workers()
    inside.network = SimpleNamespace(
        address=lambda host: "10.0.0.1",
        interface=lambda host: f"{host}-eth0",
        host_pids={"h1": 7, "h2": 8},
        board=SimpleNamespace(path="b"),
    )
    inside.plan = SimpleNamespace(
        run="none",
        run_dir=str(tmp_path),
        seed=1,
        scheme={},
        workload=REPLAY,
        slowdowns=[[], []],
        dilation=1.0,
        network=SimpleNamespace(hosts=hosts),
        timeline=SimpleNamespace(steps=list),
    )
    inside._start_workers()
    jobs = ["job-0.json", "job-1.json"]
    assert started == [(0, "job-0.json", 7, jobs), (1, "job-1.json", 8, jobs)]
