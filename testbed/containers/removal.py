"""Containers are known by their labels, and removed by them: those of a run at its end, those of killed runs by `testbed clean`.

A container ends by itself when the sandbox that started it does: its input closes. What is done here is to see that it is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from docker.errors import APIError, NotFound

from testbed.containers.engine import EngineError, connect
from testbed.processes import is_running

OWNER_LABEL = "netsense-testbed.owner"  # the process that runs it, as `this_process` tells
RUN_LABEL = "netsense-testbed.run"
HOST_LABEL = "netsense-testbed.host"


@contextmanager
def cleared(run: str) -> Iterator[None]:
    """See that no container of a run is left at the end of a `with` block, whatever became of the sandbox that started them.

    An engine that is gone has taken them with it, or leaves them to `reap`: that is no reason to hide why the block ended.
    """
    try:
        yield
    finally:
        with suppress(EngineError):
            client = connect()
            for container in client.containers(all=True, filters={"label": f"{RUN_LABEL}={run}"}):
                remove(client, container["Id"])
            client.close()


def reap() -> Iterator[str]:
    """Remove the containers of runs that are gone; yield a sentence for each. Without an engine there are none."""
    try:
        client = connect()
    except EngineError:
        return
    try:
        for container in client.containers(all=True, filters={"label": OWNER_LABEL}):
            try:
                owner = json.loads(container["Labels"][OWNER_LABEL])
            except ValueError:
                continue  # not by us
            if not is_running(owner):
                remove(client, container["Id"])
                yield f"container {container['Id'][:12]} ({container['Labels'].get(HOST_LABEL)}): removed, its run was killed"
    finally:
        client.close()


def remove(client: Any, container: str) -> None:
    """Remove a container, running or not, and return when it is gone; one that is being removed already is waited for."""
    try:
        client.remove_container(container, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:  # its removal is under way
            raise
        with suppress(NotFound):
            client.wait(container, condition="removed")
