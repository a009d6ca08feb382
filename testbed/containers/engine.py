"""The Docker engine of this machine, and in one sentence what is wrong with it or with an image."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound

from testbed.containers.identity import PYTHON_LABEL, SOURCE_LABEL, python_version, source_digest

DEFAULT_HOST = "unix:///var/run/docker.sock"
SCHEME = "unix://"
WORKER_IMAGE = "netsense-worker"
TIMEOUT_S = 60
GPU_RUNTIME = "nvidia"
ROOTLESS = "name=rootless"  # begins what such an engine says of its security


class EngineError(RuntimeError):
    """Containers cannot be run here as they are asked for; the message has the remedy."""


class NoEngine(EngineError):
    """Nobody listens where the engine should."""


def address() -> str:
    """Return where the engine is said to listen."""
    return os.environ.get("DOCKER_HOST") or DEFAULT_HOST


def connect() -> docker.APIClient:
    """Return a client of this machine's engine; EngineError if there is none for us."""
    host = address()
    if not host.startswith(SCHEME):
        raise EngineError(f"DOCKER_HOST is {host}, and workers must be on this machine: unset it, or name a unix:// socket")
    _knock(Path(host.removeprefix(SCHEME)))
    try:
        client = docker.APIClient(base_url=host, version="auto", timeout=TIMEOUT_S)
    except DockerException as error:
        remedy = "start it again (systemctl restart docker), or have DOCKER_HOST name another socket"
        raise EngineError(f"the engine at {host} does not answer as one ({error}): {remedy}") from error
    return client


@contextmanager
def asking() -> Iterator[None]:
    """Put it into a sentence, EngineError, when an engine that was there goes away or refuses what it is asked in a `with` block."""
    try:
        yield
    except (DockerException, OSError) as error:
        if isinstance(error, APIError) and error.is_client_error():  # it is well, and to start it again would help nobody
            raise EngineError(f"the engine at {address()} refuses what it is asked: {_reason(error)}") from error
        remedy = "see what it says (journalctl -u docker), and start it again if it has ended"
        raise EngineError(f"the engine at {address()} does not do what it is asked ({_reason(error)}): {remedy}") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def _knock(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5.0)
        try:
            probe.connect(str(path))
        except PermissionError as error:
            remedy = "run it with sudo, or join the group that the socket belongs to"
            raise EngineError(f"this user has no permission on the engine's socket {path}: {remedy}") from error
        except OSError as error:
            remedy = "start it (systemctl start docker), or install one (apt-get install docker.io)"
            kind = NoEngine if isinstance(error, FileNotFoundError | ConnectionRefusedError) else EngineError
            raise kind(f"no Docker engine answers at {path}: {remedy}") from error


def fitting_image(client: docker.APIClient, name: str) -> dict[str, Any]:
    """Return what the engine says of a worker's image; EngineError unless it is here, and of our Python and sources."""
    try:
        image: dict[str, Any] = client.inspect_image(name)
    except ImageNotFound:
        make = "`make images` makes it" if name.split(":")[0] == WORKER_IMAGE else f"`docker pull {name}` or `docker build` gets it"
        raise EngineError(f"the engine at {address()} has no image {name}: {make}") from None
    except APIError as error:
        hint = f"write NAME or NAME:TAG, as `docker images` lists them, e.g. {WORKER_IMAGE}"
        raise EngineError(f"the engine at {address()} does not take {name} for an image ({_reason(error)}): {hint}") from error
    labels = image["Config"].get("Labels") or {}
    if PYTHON_LABEL not in labels or SOURCE_LABEL not in labels:
        raise EngineError(f"image {name} is none for workers: build it FROM {WORKER_IMAGE}, which `make images` makes")
    if labels[PYTHON_LABEL] != python_version():
        raise EngineError(
            f"image {name} has Python {labels[PYTHON_LABEL]} and the testbed {python_version()}: "
            f"make images BASE_IMAGE=python:{python_version()}-slim-bookworm"
        )
    if labels[SOURCE_LABEL] != source_digest():
        raise EngineError(f"image {name} holds the workers' code of another version of the testbed: run `make images` again")
    return image


def require_rootful(client: docker.APIClient) -> None:
    """Raise EngineError if the engine is a user's own: files that are given to workers would be nobody's in their containers."""
    if any(option.startswith(ROOTLESS) for option in client.info().get("SecurityOptions") or []):
        remedy = f"have DOCKER_HOST name the system's, e.g. {DEFAULT_HOST}"
        raise EngineError(f"the engine at {address()} is rootless, and users have other numbers in its containers: {remedy}")


def require_gpus(client: docker.APIClient) -> None:
    """Raise EngineError unless the engine can give containers a GPU."""
    if GPU_RUNTIME not in client.info().get("Runtimes", {}):
        remedy = "install the NVIDIA Container Toolkit and tell the engine of it (nvidia-ctk runtime configure), or leave gpus out"
        raise EngineError(f"gpus: this engine has no GPU runtime: {remedy}")
