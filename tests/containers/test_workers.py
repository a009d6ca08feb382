"""Workers in containers on a real network: they train as processes do, see nothing but it, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest

from testbed.containers.crew import NAMES
from testbed.record import RUNNERS_OWN
from tests.emulation.experiments import COMPLETE, ROOT, command, look_at_machine, manifest, run_when_calm, start, wait_until

pytestmark = pytest.mark.usefixtures("emulation")

SCHEMES = ("topk-0.1",)
BOXED = """
name: {name}
topology: {{kind: dumbbell, workers: 3, bottleneck: {{rate: 20mbit, delay: 2ms}}, access: {{rate: 40mbit}}}}
hosts: {hosts}
workload: {{kind: train, model: small_cnn, dataset: fashion-mnist, batch_size: 32, optimizer: {{name: sgd, lr: 0.05}},
           budget: {{{budget}}}, eval_every: 2s, eval_samples: 500, warmup_steps: 3}}
schemes: [{schemes}]
"""
SAME = ["rank", "step", "samples", "bytes_sent", "bytes_received", "dense_bytes", "ratio", "loss"]  # all of a step but times
SAME_IN_SUMMARY = ["run", "scheme", "workload", "repeat", "final_accuracy", "bytes_per_step", "bytes_sent", "compression_ratio", "valid"]
SPEED_TOLERANCE = 1.0  # of 40 steps on processors whose speed may change by half within a minute; docs/benchmarks.md has the cost
TRAFFIC = "conditions: [{at: 0s, background: {from: t1, to: t2, protocol: udp, rate: 2mbit}}]\n"
INSIDE = (
    "cut -d: -f1 /proc/net/dev | tail -n +3; id -u; grep CapEff /proc/self/status; touch /etc/mine 2>&1; touch /opt/mine 2>&1; "
    "cat /etc/hosts /etc/resolv.conf"
)
SOCKETS = "find -L / -path /proc -prune -o -path /sys -prune -o -type s -print 2>/dev/null; grep -F @ /proc/net/unix"  # paths, then names
SPOIL = 'cd "$0"; for file in *; do [ $(stat -c %u $file) = 0 ] && mv $file mine 2>/dev/null && echo $file; done; touch own && rm own'


def write(folder: Path, name: str, hosts: str, budget: str = "steps: 40", schemes: tuple[str, ...] = SCHEMES) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(BOXED.format(name=name, hosts=hosts, budget=budget, schemes=", ".join(schemes)))
    return path


def ours(engine) -> list[str]:
    listed = engine.api.containers(all=True, filters={"label": "netsense-testbed.run"})
    return [one["Labels"]["netsense-testbed.host"] for one in listed]


def clean(results: Path) -> subprocess.CompletedProcess[str]:
    arguments = [*command(results / "x.yaml")[:3], "clean", "--results", str(results)]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(path), cwd=ROOT, capture_output=True, text=True, timeout=280)


def training(engine, path: Path, scheme: str) -> subprocess.Popen[str]:
    """Start an experiment in containers, and wait until its workers train."""
    process = start(command(path))
    steps = path.parent / "results" / path.stem / scheme / "stream" / "steps-0.jsonl"
    wait_until(lambda: (steps.exists() and steps.stat().st_size > 0) or process.poll() is not None, 100, "workers training")
    assert process.poll() is None, process.stdout.read() if process.stdout else ""
    return process


def iperf3_in(container) -> list[Path]:
    """Return the processes of iperf3 in a container's network, where the testbed has put them."""
    network, found = os.readlink(f"/proc/{container.attrs['State']['Pid']}/ns/net"), []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if (process / "comm").read_text().strip() == "iperf3" and os.readlink(process / "ns" / "net") == network:
                found.append(process)
    return found


def steps_by_rank(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "steps.parquet").sort_values(["rank", "step"], ignore_index=True)


def test_containers_train_as_processes_do_and_give_the_same_records_and_figures(engine, worker_image, tmp_path):
    before = look_at_machine()
    results = {}
    for name, hosts in (("processes", "{kind: process}"), ("boxes", f"{{kind: container, image: {worker_image}}}")):
        done = run_when_calm(command(write(tmp_path, name, hosts), report=True), timeout_s=280)
        assert done.returncode == 0, done.stderr + done.stdout
        results[name] = tmp_path / "results" / name
    for scheme in SCHEMES:
        plain, boxed = (manifest(results[name], scheme) for name in results)
        assert plain["valid"] and boxed["valid"], (plain["invalid_reasons"], boxed["invalid_reasons"])
        # the same code, data, seed and order of samples: bit by bit the same model after as many steps
        assert boxed["workers"][0]["parameter_digest"] == plain["workers"][0]["parameter_digest"]
        assert boxed["containers"]["name"] == worker_image
        assert boxed.keys() == plain.keys()
        assert {key for key in boxed if (boxed[key] is None) != (plain[key] is None)} == {"containers"}
        for table in ("steps", "evals", "links", "events"):
            one, other = (pd.read_parquet(folder / scheme / f"{table}.parquet") for folder in results.values())
            assert list(one.columns) == list(other.columns)
        one, other = (steps_by_rank(folder / scheme) for folder in results.values())
        assert one[SAME].equals(other[SAME])
        seconds = [worker["train_s"] for run in (plain, boxed) for worker in run["workers"]]
        assert max(seconds) <= (1 + SPEED_TOLERANCE) * min(seconds), seconds
    drawn = [sorted(file.name for file in (folder / "figures").iterdir()) for folder in results.values()]
    assert drawn[0] == drawn[1]
    summaries = [pd.read_csv(folder / "summary.csv") for folder in results.values()]
    assert list(summaries[0].columns) == list(summaries[1].columns)
    assert summaries[0][SAME_IN_SUMMARY].equals(summaries[1][SAME_IN_SUMMARY])
    assert ours(engine) == []
    assert look_at_machine() == before


def test_inside_there_is_the_emulated_interface_and_no_other_and_no_privilege(engine, worker_image, tmp_path):
    process = training(engine, write(tmp_path, "seen", f"{{kind: container, image: {worker_image}}}", "seconds: 60", ("none",)), "none")
    stream = tmp_path / "results" / "seen" / "none" / "stream"
    try:
        containers = engine.containers.list(filters={"label": "netsense-testbed.run"})
        assert sorted(ours(engine)) == ["h1", "h2", "h3"]
        for container in containers:
            output = container.exec_run(["sh", "-c", INSIDE]).output
            lines = output.decode().splitlines()
            assert [line.strip() for line in lines[:2]] == ["lo", f"{container.labels['netsense-testbed.host']}-eth0"], lines
            assert lines[2] == "10001" if "SUDO_UID" not in os.environ else lines[2] != "0"
            assert int(lines[3].split()[1], 16) == 0
            assert all("Read-only file system" in line for line in lines[4:6]), lines
            assert lines[6:] == NAMES.splitlines()  # and it asks no server for others
            assert container.exec_run(["sh", "-c", SOCKETS]).output.decode() == ""
        assert (stream.parent / "api.sock").is_socket()  # there is one to be kept from
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: ours(engine) == [], 10, "the containers of a killed run to end by themselves")


def test_nothing_that_root_writes_where_workers_write_can_be_replaced_by_them(engine, worker_image, tmp_path):
    process = training(engine, write(tmp_path, "kept", f"{{kind: container, image: {worker_image}}}", "seconds: 60", ("none",)), "none")
    stream = tmp_path / "results" / "kept" / "none" / "stream"
    try:
        roots = {file.name for file in stream.iterdir() if file.lstat().st_uid == 0}
        assert roots == {*RUNNERS_OWN, "board.bin", "api.sock", "hosts", "job-0.json", "job-1.json", "job-2.json"}
        for container in engine.containers.list(filters={"label": "netsense-testbed.run"}):
            spoilt = container.exec_run(["sh", "-c", SPOIL, str(stream)])
            assert (spoilt.exit_code, spoilt.output.decode()) == (0, "")
        assert stream.stat().st_uid == 0
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def test_a_container_for_traffic_that_is_killed_ends_the_run_with_the_reason(engine, worker_image, tmp_path):
    path = write(tmp_path, "quiet", f"{{kind: container, image: {worker_image}}}", "seconds: 60", ("none",))
    path.write_text(path.read_text().replace("workers: 3", "workers: 2, traffic_hosts: 2") + TRAFFIC)
    process = training(engine, path, "none")
    background = tmp_path / "results" / "quiet" / "none" / "stream" / "background.jsonl"
    wait_until(lambda: background.stat().st_size > 0, 20, "background traffic")
    for host in ("t1", "t2"):
        (victim,) = engine.containers.list(filters={"label": ["netsense-testbed.run", f"netsense-testbed.host={host}"]})
        (iperf3,) = iperf3_in(victim)
        status = dict(line.split(":\t", 1) for line in (iperf3 / "status").read_text().splitlines())
        assert status["NoNewPrivs"] == "1" and int(status["CapPrm"], 16) == 0 and "0" not in status["Uid"].split()
        assert {one.partition(b"=")[0] for one in (iperf3 / "environ").read_bytes().split(b"\0")[:-1]} == {b"PATH", b"HOME"}
    (victim,) = engine.containers.list(filters={"label": ["netsense-testbed.run", "netsense-testbed.host=t1"]})
    victim.kill()
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "the container of t1 was killed from outside (docker kill, signal 9)" in output.replace("\n", " ")
    assert sum(json.loads(line)["received_bytes"] for line in background.read_text().splitlines()) > 0
    assert not manifest(tmp_path / "results" / "quiet", "none")["valid"]
    assert ours(engine) == []


def test_a_container_that_is_killed_ends_the_run_with_the_reason_and_leaves_nothing(engine, worker_image, tmp_path):
    before = look_at_machine()
    path = write(tmp_path, "struck", f"{{kind: container, image: {worker_image}}}", "seconds: 60", ("topk-0.1",))
    process = training(engine, path, "topk-0.1")
    (victim,) = engine.containers.list(filters={"label": ["netsense-testbed.run", "netsense-testbed.host=h2"]})
    victim.kill()
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "worker 1 is gone: its container was killed from outside (docker kill, signal 9)" in output
    told = manifest(tmp_path / "results" / "struck", "topk-0.1")
    assert told["status"] == "failed" and not told["valid"]
    assert ours(engine) == []
    assert look_at_machine() == before


def test_a_worker_that_needs_more_memory_than_it_may_use_is_told_so(engine, worker_image, tmp_path):
    path = write(tmp_path, "tight", f"{{kind: container, image: {worker_image}, memory: 400MB}}", schemes=("none",))
    path.write_text(path.read_text().replace("batch_size: 32", "batch_size: 8192"))
    done = run(path)
    assert done.returncode == 1
    assert "ran out of the memory its container may use" in done.stdout.replace("\n", " "), done.stdout
    assert ours(engine) == []


def test_a_worker_has_its_share_of_a_processor_and_the_manifest_says_how_long_it_was_held_back(engine, worker_image, tmp_path):
    process = training(engine, write(tmp_path, "slow", f"{{kind: container, image: {worker_image}, cpus: 0.25}}", "steps: 30"), "topk-0.1")
    for container in engine.containers.list(filters={"label": "netsense-testbed.run"}):
        given = container.attrs["HostConfig"]
        assert given["CpuQuota"] == 0.25 * given["CpuPeriod"]
        assert given["CpuPeriod"] == 100_000
    output = process.communicate(timeout=200)[0]
    assert process.returncode in COMPLETE, output
    limits = manifest(tmp_path / "results" / "slow", "topk-0.1")["cpu_limits"]
    assert [(limit["worker"], limit["cpus"]) for limit in limits] == [(0, 0.25), (1, 0.25), (2, 0.25)]
    assert all(limit["throttled_s"] > 0 for limit in limits), limits
    assert ours(engine) == []


def test_containers_of_a_killed_run_that_did_not_end_are_removed_by_clean(engine, worker_image, tmp_path):
    gone = {"pid": 1, "started": 1, "boot": "another"}
    labels = {"netsense-testbed.owner": json.dumps(gone), "netsense-testbed.run": "1-1-1", "netsense-testbed.host": "h1"}
    engine.containers.run(worker_image, ["sleep", "600"], labels=labels, network_mode="none", detach=True)
    foreign = engine.containers.run(worker_image, ["sleep", "600"], network_mode="none", detach=True)
    try:
        done = clean(tmp_path)
        assert done.returncode == 0 and "removed, its run was killed" in done.stdout.replace("\n", " "), done.stdout + done.stderr
        assert ours(engine) == []
        foreign.reload()
        assert foreign.status == "running"
    finally:
        foreign.remove(force=True)


def test_a_run_that_is_killed_while_it_makes_its_containers_leaves_none_after_clean(engine, worker_image, tmp_path):
    process = start(command(write(tmp_path, "early", f"{{kind: container, image: {worker_image}}}")))
    wait_until(lambda: bool(ours(engine)) or process.poll() is not None, 60, "a first container")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = clean(tmp_path)
    assert done.returncode == 0, done.stderr
    assert ours(engine) == []


@pytest.fixture
def of_another_python(engine, worker_image):
    name, written = "netsense-test-python", f"FROM {worker_image}\nLABEL netsense-testbed.python=3.9\n"
    engine.images.build(fileobj=BytesIO(written.encode()), tag=name, rm=True)
    yield name
    engine.images.remove(name)


def test_what_cannot_be_is_one_sentence_and_nothing_is_started(engine, worker_image, of_another_python, tmp_path, monkeypatch):
    def refusal(image: str) -> str:
        done = run(write(tmp_path, "refused", f"{{kind: container, image: {image}}}"))
        assert done.returncode == 2, done.stdout
        assert not (tmp_path / "results").exists()
        return done.stderr.replace("\n", " ")

    asked = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    assert f"the engine at {asked} has no image netsense-worker:nobodys: `make images` makes it" in refusal("netsense-worker:nobodys")
    assert "has Python 3.9 and the testbed" in refusal(of_another_python)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert "no Docker engine answers" in refusal(worker_image)
    assert ours(engine) == []
