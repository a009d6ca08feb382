"""The images: small, without what they were built from, and a worker's starts with no rights, no network and nothing to write to."""

from __future__ import annotations

import json
import os
import subprocess
from io import BytesIO

import docker
import pytest

from testbed.containers.engine import DEFAULT_HOST
from testbed.containers.identity import PYTHON_LABEL, SOURCE_LABEL, python_version, source_digest
from tests.containers.engine import ROOT, script

MOST_ADDED_BYTES = 300e6  # to torch and what it needs
LOCKED_DOWN = ["--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--tmpfs=/tmp"]
WITH_KERNELS = ("topk-0.1", "randomk-0.1", "3lc", "qsgd", "terngrad", "onebit", "natural")
# Size of torch and of the packages it declares to need. numpy is none of them.
TORCHS_OWN = """
import importlib.metadata as metadata, json, re
from pathlib import Path
names, todo = set(), ["torch"]
while todo:
    name = re.split(r"[ ;<>=!\\[(]", todo.pop())[0].lower()
    if name not in names:
        names.add(name)
        todo += [need for need in metadata.requires(name) or [] if "extra ==" not in need]
site = Path(metadata.distribution("torch").locate_file(""))
tops = {file.parts[0] for name in names for file in metadata.files(name)} - {"..", "__pycache__"}
files = [path for top in tops for path in [site / top, *(site / top).rglob("*")] if path.is_file()]
print(sum(path.stat().st_size for path in files))
"""


def run(image: str, *arguments: str, options: list[str], told: str = "") -> str:
    command = ["docker", "run", "--rm", "-i", *options, image, *arguments]
    return subprocess.run(command, input=told, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", ["netsense-worker", "netsense-testbed"])
def test_an_image_says_of_which_python_and_sources_it_is_and_has_a_tag_that_stays(engine: docker.DockerClient, images, name):
    image = engine.images.get(name)
    assert {PYTHON_LABEL: python_version(), SOURCE_LABEL: source_digest()}.items() <= image.labels.items()
    assert len([tag for tag in image.tags if tag.startswith(f"{name}:")]) >= 2


def test_a_worker_is_ready_without_rights_or_network_and_compiles_no_kernel(worker_image):
    told = "".join(json.dumps({"preload": {"scheme": {"scheme": name}}}) + "\n" for name in WITH_KERNELS)
    said = run(worker_image, options=["--env=NUMBA_DEBUG_CACHE=1", *LOCKED_DOWN], told=told)
    cached = [line for line in said.splitlines() if line.startswith("[cache]")]
    assert cached and all("loaded from" in line for line in cached)
    assert [line for line in said.splitlines() if line not in cached] == [
        '{"event": "ready"}',
        *['{"event": "preloaded"}'] * len(WITH_KERNELS),
    ]


def test_kernels_of_another_processor_are_compiled_anew(worker_image):
    pretend = "import baked_kernels; baked_kernels._processor = lambda: 'another'; import workloads.compression.packing"
    said = run(worker_image, "python", "-c", pretend, options=["--env=NUMBA_DEBUG_CACHE=1", *LOCKED_DOWN])
    assert "saved to '/tmp/" in said and "/opt/netsense/kernels" not in said


def test_the_user_is_not_root(engine: docker.DockerClient, worker_image):
    assert engine.images.get(worker_image).attrs["Config"]["User"] == "10001:10001"
    assert run(worker_image, "id", "-u", options=LOCKED_DOWN).strip() == "10001"


def test_the_workers_image_adds_little_to_torch(engine: docker.DockerClient, worker_image):
    torchs_own = int(run(worker_image, "python", "-c", TORCHS_OWN, options=LOCKED_DOWN))
    assert engine.images.get(worker_image).attrs["Size"] - torchs_own < MOST_ADDED_BYTES


@pytest.mark.parametrize("name", ["netsense-system", "netsense-worker", "netsense-testbed", "netsense-prometheus"])
def test_what_is_installed_has_its_libraries_and_nothing_more_can_be_installed(images, name):
    system = r"find /usr -xdev -type f \( -perm /111 -o -name *.so* \) -exec ldd {} +"
    said = run(name, "sh", "-c", f"set -f; {system} 2>/dev/null || true", options=["--network=none", "--user=0", "--entrypoint="])
    assert "libc.so.6 => /" in said
    missing = {line.strip() for line in said.splitlines() if "not found" in line}
    assert missing <= {"libatm.so.1 => not found"}  # which iproute2 only recommends, for ATM
    tools = "for tool in apt-get dpkg perl pip pip3 useradd su; do command -v $tool; done || true"
    assert run(name, "sh", "-c", tools, options=["--network=none", "--user=0", "--entrypoint="]) == ""
    of_python = "find / -xdev ( -path */*-packages/pip -o -name ensurepip )"
    assert run(name, *of_python.split(), options=["--network=none", "--user=0", "--entrypoint="]) == ""


@pytest.mark.parametrize("name", ["netsense-system", "netsense-worker", "netsense-testbed", "netsense-prometheus"])
def test_no_layer_keeps_what_the_image_was_built_from(engine: docker.DockerClient, images, name):
    command = "find / -xdev ( -name *.whl -o -name *.deb -o -path /from -o -path /added )"
    assert run(name, *command.split(), options=["--network=none", "--user=0", "--entrypoint="]) == ""
    assert not any("/from" in layer["CreatedBy"] for layer in engine.images.get(name).history() if layer["Size"])


def test_what_was_built_is_not_built_again(engine: docker.DockerClient, images):
    before = {image.id for image in engine.images.list()}
    done = script("build.sh", **images)
    assert done.returncode == 0
    assert "building" not in done.stderr
    assert {image.id for image in engine.images.list()} == before


def test_testbed_knows_its_commands(images):
    assert "netsense" in run("netsense-testbed", "schemes", "--json", options=["--network=none"])


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"DOCKER_HOST": "unix:///nowhere/docker.sock"}, "no Docker engine answers at unix:///nowhere/docker.sock: start one"),
        ({"BASE_IMAGE": "nowhere.invalid/none"}, "is not here and cannot be pulled: make base-image makes a base locally"),
        ({"VENV": "/nowhere"}, "there is no virtual environment yet"),
    ],
)
def test_what_is_missing_is_told_in_a_sentence(engine, environment, sentence):
    done = script("build.sh", **environment)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_images_go_to_the_engine_that_runs_use_and_not_to_that_of_a_docker_context():
    elsewhere = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"} | {"DOCKER_CONTEXT": "elsewhere"}
    done = subprocess.run(["sh", "-c", ". docker/engine.sh; echo $DOCKER_HOST"], cwd=ROOT, env=elsewhere, capture_output=True, text=True)
    assert done.stdout.strip() == DEFAULT_HOST


def test_a_base_of_another_python_is_refused_with_the_one_to_use(engine: docker.DockerClient, images):
    pretend = "RUN printf '#!/bin/sh\\necho 3.99\\n' > /usr/local/bin/python3 && chmod 755 /usr/local/bin/python3"
    other, _ = engine.images.build(fileobj=BytesIO(f"FROM {images['BASE_IMAGE']}\n{pretend}\n".encode()), rm=True)
    done = script("build.sh", **{**images, "BASE_IMAGE": other.id})
    engine.images.remove(other.id)
    assert done.returncode == 2
    assert f"has 3.99: make images BASE_IMAGE=python:{python_version()}-slim-bookworm" in done.stderr


def test_an_engine_that_one_may_not_use_is_told_in_a_sentence(engine: docker.DockerClient):
    if os.geteuid() != 0:
        pytest.skip("only root can pretend to be somebody else")
    text = (ROOT / "docker/engine.sh").read_text() + "require_engine\n"
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "sh"], input=text, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "docker: you may not use the Docker engine's socket: use sudo, or have yourself added to the group docker\n"
