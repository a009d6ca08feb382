"""An engine and our images, once for all tests; without them tests are skipped, with the reason."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from tests.containers import engine as engines

BUILD_TIMEOUT_S = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of this folder time for images: the first that needs them has them built."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT_S))


@pytest.fixture(scope="session")
def engine():
    """Yield a client of an engine: the machine's, or a private one."""
    try:
        with engines.running_engine() as client:
            yield client
    except engines.NoEngine as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def images(engine: docker.DockerClient) -> dict[str, str]:
    """Have all images there, built from the sources as they are; return how they were asked for."""
    try:
        return engines.build_images(engine)
    except engines.NoEngine as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def worker_image(images: dict[str, str]) -> str:
    """Return the name of the workers' image."""
    return "netsense-worker"
