"""docker-compose up, to the end of an experiment, while Prometheus reads its queues over the compose network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
import pandas as pd
import pytest
import yaml

from testbed.lock import MachineLock
from tests.containers.engine import REALTIME
from tests.emulation.experiments import ROOT, manifest, wait_until, write_tiny
from tests.measuring import measured

PROJECT = "netsense-test"
TIMEOUT_S = 240
TRAFFIC = "conditions: [{at: 0s, background: {from: h1, to: h2, protocol: udp, rate: 1mbit}}]\n"
MEASURED = "/var/cache/netsense-testbed/containers"  # what the machine carries, kept for the next time


@pytest.fixture
def compose() -> list[str]:
    """Return the command of whichever docker-compose there is, with our files."""
    if shutil.which("docker-compose"):
        command = ["docker-compose"]
    elif subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        command = ["docker", "compose"]
    else:
        pytest.skip("there is neither docker-compose nor docker compose: apt-get install docker-compose")
    files = ["docker-compose.yml", *(["docker/realtime.yml"] if REALTIME.exists() else [])]
    return [*command, "-p", PROJECT, *(word for file in files for word in ("-f", file))]


@contextmanager
def started(command: list[str], environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start services, with the machine to themselves; at the end of the block remove them and their volumes."""
    environment = {**os.environ, "CACHE": MEASURED, **environment}
    with MachineLock(share=False, waiting=print):  # that in the container is another one
        process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            subprocess.run([*command, "--profile=monitoring", "down", "-v"], cwd=ROOT, env=environment, capture_output=True, check=True)
            process.communicate(timeout=TIMEOUT_S)


def ask_prometheus(engine: docker.DockerClient, query: str) -> list[Any]:
    """Return what Prometheus answers by now."""
    labels = [f"com.docker.compose.project={PROJECT}", "com.docker.compose.service=prometheus"]
    for container in engine.containers.list(filters={"label": labels}):
        # inside: its address may be one of the engine's own network
        asked = container.exec_run(["promtool", "query", "instant", "--format=json", "http://localhost:9090", query])
        if asked.exit_code == 0:  # else it is starting
            found: list[Any] = json.loads(asked.output)
            return found
    return []


@measured
def test_an_experiment_runs_to_its_end_and_prometheus_reads_its_queues(engine, images, compose, tmp_path):
    write_tiny(tmp_path, seconds=5)
    environment = {"EXPERIMENT": "mine/tiny.yaml", "EXPERIMENTS": str(tmp_path), "RESULTS": str(tmp_path), "PROMETHEUS_PORT": "0"}
    up = ["--profile=monitoring", "up", "--no-color", "--exit-code-from=testbed"]
    with started(compose, environment, *up) as process:
        query = 'max_over_time(testbed_link_sent_bytes_total{link="bottleneck", job="testbed"}[1m]) > 0'
        wait_until(lambda: bool(ask_prometheus(engine, query)) or process.poll() is not None, TIMEOUT_S, "a metric in Prometheus")
        scraped = ask_prometheus(engine, query)
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert {sample["metric"]["instance"] for sample in scraped} == {"testbed:9464"}
    run = manifest(tmp_path / "tiny", "none")
    assert run["status"] == "complete"
    assert run["valid"], run["invalid_reasons"]
    assert (tmp_path / "tiny" / "report.html").exists()
    assert not engine.containers.list(all=True, filters={"label": f"com.docker.compose.project={PROJECT}"})


@measured
def test_workers_have_containers_of_their_own_in_the_profile_that_mounts_the_socket(engine, images, compose, tmp_path):
    text = write_tiny(tmp_path, seconds=3).read_text()
    (tmp_path / "tiny.yaml").write_text(text + "hosts: {kind: container, image: netsense-worker}\n" + TRAFFIC)
    socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
    environment = {"EXPERIMENT": "mine/tiny.yaml", "EXPERIMENTS": str(tmp_path), "DOCKER_SOCKET": socket, "HOST_RESULTS": str(tmp_path)}
    with started(compose, environment, "run", "--rm", "containers") as process:
        said, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    run = manifest(tmp_path / "tiny", "none")
    assert run["status"] == "complete"
    assert run["valid"], run["invalid_reasons"]
    assert run["containers"]["name"] == "netsense-worker"
    assert pd.read_parquet(tmp_path / "tiny" / "none" / "background.parquet")["received_bytes"].sum() > 0


def test_only_the_profile_for_it_mounts_the_socket_and_nothing_is_privileged():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert [name for name, service in services.items() if "docker.sock" in json.dumps(service)] == ["containers"]
    assert not any(service.get("privileged") for service in services.values())
    assert services["containers"]["profiles"] == ["containers"]


def test_no_service_may_do_more_than_it_was_found_to_need():
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    network = ["SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_NICE", "SYS_PTRACE"]
    workers = ["CHOWN", "DAC_OVERRIDE", "SYS_CHROOT", "SETGID", "SETUID", "KILL"]
    added = {name: service["cap_add"] for name, service in services.items() if "cap_add" in service}
    assert added == {"testbed": network, "containers": network + workers}
    assert all(services[name]["cap_drop"] == ["ALL"] for name in ("testbed", "containers", "prometheus"))
