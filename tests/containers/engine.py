"""A Docker engine for tests: the one that answers, else a private one that ends with the tests and keeps its images for the next."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException

from testbed.containers.identity import python_version
from testbed.processes import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path("/var/cache/netsense-testbed/engine")  # of the private engine: images are built once
FETCHED = Path("/var/cache/netsense-testbed/images")  # wheels and packages; root leaves none in the user's tree
LOCAL_BASE = "netsense-base"
BASES = (f"python:{python_version()}-slim-bookworm", LOCAL_BASE)  # the first that is there, if BASE_IMAGE names none
START_TIMEOUT_S = 30
REALTIME = Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")  # where it is, a group has no real-time scheduling unless it is given some
REALTIME_US = 900_000


class NoEngine(RuntimeError):
    """No engine can be had here; the message says why."""


@contextmanager
def running_engine() -> Iterator[docker.DockerClient]:
    """Yield a client of an engine, and have DOCKER_HOST name it meanwhile."""
    client = _answering(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    if client is not None:
        with closing(client):
            yield client
        return
    if os.geteuid() != 0:
        raise NoEngine("no Docker engine answers, and a private one needs root")
    if shutil.which("dockerd") is None:
        raise NoEngine("no Docker engine answers, and there is no dockerd to start a private one: apt-get install docker.io")
    with _alone():
        with _private_engine(own_network=False) as client:  # packages come through the machine's
            build_images(client)
        with _private_engine(own_network=True) as client:
            yield client


@contextmanager
def _alone() -> Iterator[None]:
    """Have the private engine's folder to ourselves, from the first start to the last end."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT.parent / "engine.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NoEngine("another run of the tests has the private engine") from None
        yield


@contextmanager
def _private_engine(own_network: bool) -> Iterator[docker.DockerClient]:
    """Start an engine; one with a network of its own has nothing to do with the machine's, nor with a firewall left there."""
    # An engine makes anew the bridges it remembers: those of compose, of tests that were killed, would come into the machine's network.
    shutil.rmtree(KEPT / "network", ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="engine-") as folder:
        address, log = f"unix://{folder}/docker.sock", Path(folder) / "log"
        command = ["unshare", "--mount", "--propagation=private"]  # its mounts are nobody else's, and gone with it
        command += ["--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"] if own_network else []
        command += ["dockerd", f"--host={address}", f"--data-root={KEPT}", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
        command += ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]  # the machine's network stays as it is
        command += [f"--cpu-rt-runtime={REALTIME_US}"] if REALTIME.exists() else []
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, preexec_fn=die_with_parent)
        try:
            _wait(process, address, log)
            with _named_by_environment(address), closing(docker.DockerClient(address)) as client:
                yield client
        finally:
            process.send_signal(signal.SIGTERM)  # it ends its containers and its containerd
            process.wait(60)


@contextmanager
def _named_by_environment(address: str) -> Iterator[None]:
    """Have DOCKER_HOST name an engine meanwhile."""
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = address
    try:
        yield
    finally:
        os.environ.pop("DOCKER_HOST")
        if before is not None:
            os.environ["DOCKER_HOST"] = before


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while (client := _answering(address)) is None:
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise NoEngine(f"a private Docker engine does not start here: {log.read_text(errors='replace')[-500:]}")
        time.sleep(0.1)
    client.close()


def _answering(address: str) -> docker.DockerClient | None:
    try:
        client = docker.DockerClient(address)
    except DockerException:
        return None
    try:
        client.ping()
    except (DockerException, OSError):
        client.close()
        return None
    return client


def build_images(client: docker.DockerClient) -> dict[str, str]:
    """Build the images that are not there yet as the sources want them, making a base if need be; return how they were asked for."""
    there = {tag.removesuffix(":latest") for image in client.images.list() for tag in image.tags}
    base = os.environ.get("BASE_IMAGE") or next((name for name in BASES if name in there), None)
    if base is None:
        done = script("base.sh")
        if done.returncode != 0:
            raise NoEngine(f"no base image can be made here: {done.stderr.strip()}")
    asked = {"BASE_IMAGE": base or LOCAL_BASE, "BUILD": str(FETCHED)}
    done = script("build.sh", **asked)
    assert done.returncode == 0, done.stderr
    if client.info()["DockerRootDir"] == str(KEPT):
        _remove_older(client)
    return asked


def _remove_older(client: docker.DockerClient) -> None:
    """Remove our images of earlier sources, half a gigabyte each, and what tests that were killed have left."""
    for container in client.containers.list(all=True):
        container.remove(force=True)
    for image in client.images.list():
        if not any(tag.endswith(":latest") for tag in image.tags):
            for tag in image.tags:
                client.images.remove(tag)
    client.images.prune({"dangling": True, "until": "24h"})  # stages of builds; newer ones make the next build a short one


def script(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the images' folder."""
    return subprocess.run(["sh", f"docker/{name}"], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
