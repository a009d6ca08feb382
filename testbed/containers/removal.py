"""Containers are known by their labels, and removed by them: those of a run at its end, those of killed runs by `testbed clean`.

A container ends by itself when the sandbox that started it does: its input closes. What is done here is to see that it is gone. One that
was never started has no input to close, and an engine may still be making one when whoever asked for it is gone: so it is looked twice.
Where a killed run left some, the engine may be slow, and is looked at for longer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

from testbed.containers.engine import TIMEOUT_S, EngineError, NoEngine, asking, connect
from testbed.processes import may_run

OWNER_LABEL = "netsense-testbed.owner"  # the process that runs it, as `this_process` tells
RUN_LABEL = "netsense-testbed.run"
HOST_LABEL = "netsense-testbed.host"
AGAIN_S = 0.5  # after which an engine has made what it was still making
LOOKS_AFTER_SOME = 5  # in 2 s, at a slow engine

Listed = dict[str, Any]  # a container, as the engine lists it


@contextmanager
def cleared(run: str) -> Iterator[None]:
    """See that no container of a run is left at the end of a `with` block, whatever became of the sandbox that started them.

    An engine that is gone has taken them with it, or leaves them to `reap`: that is no reason to hide why the block ended.
    """
    looks = 2
    try:
        yield
        looks = 1  # nothing was being made when it ended
    finally:
        with suppress(EngineError, DockerException, OSError), closing(connect()) as client:
            for _ in _removed(client, f"{RUN_LABEL}={run}", lambda _: True, looks):
                pass


def reap() -> Iterator[str]:
    """Remove the containers of runs that are gone; yield a sentence for each. EngineError if there may be some that cannot be seen."""
    try:
        client = connect()
    except NoEngine:
        return
    with asking(), closing(client):
        for container in _removed(client, OWNER_LABEL, _is_of_killed_run, 2, LOOKS_AFTER_SOME):
            yield f"container {container['Id'][:12]} ({container['Labels'].get(HOST_LABEL)}): removed, its run was killed"


def _removed(
    client: docker.APIClient, label: str, unwanted: Callable[[Listed], bool], looks: int, looks_after_some: int = 1
) -> Iterator[Listed]:
    """Remove unwanted containers with a label, and yield them, until so many looks in a row have found none; more once some were found."""
    found_none = 0
    while found_none < looks:
        found = [one for one in client.containers(all=True, filters={"label": label}) if unwanted(one)]
        for container in found:
            remove(client, container["Id"])
            yield container
        if found:
            found_none, looks = 0, max(looks, looks_after_some)
        else:
            found_none += 1
        if 0 < found_none < looks:
            time.sleep(AGAIN_S)


def _is_of_killed_run(container: Listed) -> bool:
    try:
        owner = json.loads(container["Labels"][OWNER_LABEL])
    except ValueError:
        return False  # not by us
    return isinstance(owner, dict) and not may_run(owner)


def remove(client: docker.APIClient, container: str) -> None:
    """Remove a container, running or not, and return when it is gone; one that is being removed already is waited for."""
    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:  # its removal is under way
            raise
        with suppress(NotFound):
            client.wait(container, timeout=TIMEOUT_S, condition="removed")
