"""What a run's containers are made from, decided before anything starts; plain data, that crosses into the sandbox with the plan."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.containers.engine import EngineError, asking, connect, fitting_image, require_gpus, require_rootful
from testbed.containers.removal import HOST_LABEL, OWNER_LABEL, RUN_LABEL
from testbed.processes import this_process
from testbed.spec.models import ContainerHosts
from workloads.datasets import fashion_mnist

USER_ID = 10001  # that workers have where no user is behind sudo
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class ContainerOrder:
    """One run's containers, SI units."""

    image: str  # by its identity: a name may come to mean another one
    name: str  # that the experiment file gave it
    engine: str  # its version
    user_id: int
    group_id: int
    run: str  # the label that all of them bear
    owner: dict[str, Any]
    memory_bytes: int | None
    gpus: list[list[str]]  # of each worker, the numbers of its GPUs
    data: dict[str, str]  # folders that workers may read: where it is outside, and inside

    def labels(self, host: str) -> dict[str, str]:
        """Return how a host's container is marked as ours."""
        return {OWNER_LABEL: json.dumps(self.owner), RUN_LABEL: self.run, HOST_LABEL: host}


def order(hosts: ContainerHosts, workers: int, workload: dict[str, Any]) -> ContainerOrder:
    """Order a run's containers; EngineError if they cannot be had."""
    with asking(), closing(connect()) as client:
        require_rootful(client)
        image = fitting_image(client, hosts.image)
        if hosts.gpus:
            require_gpus(client)
        version = client.version()["Version"]
    me = this_process()
    user_id, group_id = (int(os.environ.get(name, "0")) or USER_ID for name in ("SUDO_UID", "SUDO_GID"))
    return ContainerOrder(
        image=image["Id"],
        name=hosts.image,
        engine=version,
        user_id=user_id,
        group_id=group_id,
        run=f"{me['pid']}-{me['started']}-{next(_NUMBERS)}",
        owner=me,
        memory_bytes=hosts.memory_bytes,
        gpus=shares(hosts.gpus, workers, _gpus() if hosts.gpus else []),
        data=_data(workload),
    )


def shares(each: int, workers: int, there: list[str]) -> list[list[str]]:
    """Deal GPUs out to workers, each to the next one; where there are too few, workers share them."""
    if not each:
        return [[] for _ in range(workers)]
    if each > len(there):
        raise EngineError(f"gpus: {each} for each worker, and this machine has {len(there)}: ask for fewer")
    dealt = itertools.cycle(there)
    return [list(itertools.islice(dealt, each)) for _ in range(workers)]


def _gpus() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise EngineError("gpus: there is no nvidia-smi to tell what GPUs this machine has: install NVIDIA's driver, or leave gpus out")
    done = subprocess.run([tool, "--query-gpu=index", "--format=csv,noheader"], capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise EngineError(f"gpus: nvidia-smi finds none ({said}): mend NVIDIA's driver, or leave gpus out")
    return done.stdout.split()


def _data(workload: dict[str, Any]) -> dict[str, str]:
    if workload["kind"] != "train":
        return {}
    if workload["data_dir"] is not None:
        return {workload["data_dir"]: workload["data_dir"]}
    return {str(fashion_mnist.find_folder(None)): str(fashion_mnist.FOLDER)}


def problems(wanted: Iterable[ContainerHosts]) -> list[str]:
    """Say what speaks against these hosts here."""
    found = []
    for hosts in dict.fromkeys(wanted):
        try:
            order(hosts, 1, {"kind": "replay"})
        except EngineError as error:
            found.append(f"hosts: {error}")
    return list(dict.fromkeys(found))


def data_dir_of(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a workload whose data folder, if it names one, has the same name inside and outside."""
    given = workload.get("data_dir")
    return workload if given is None else {**workload, "data_dir": str(Path(given).resolve())}
