"""Which parts of an experiment file go with which backend: real machines have no network of ours to describe or to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.spec.fields import Place

if TYPE_CHECKING:
    from testbed.spec.models import Experiment

UNCHANGEABLE = "the network of real machines is not ours to change; leave it out, or use backend: emulated"
OF_MACHINES = {
    "hosts": "on real machines torchrun starts the workers",
    "routing": "the paths between real machines are not ours to choose",
    "transport": "the TCP settings of real machines are theirs, and recorded",
}
NOT_APPLIED = {"cluster": dict.fromkeys(OF_MACHINES)}  # what a resolved spec has no value for


def faults_of(experiment: Experiment) -> list[tuple[Place, str]]:
    """List what does not go with the experiment's backend."""
    machines = experiment.topology.kind == "machines"
    if experiment.backend != "cluster":
        return [(("topology", "kind"), f"'machines' need backend: cluster, not {experiment.backend}")] if machines else []
    faults: list[tuple[Place, str]] = []
    if not machines:
        instead = f"{{kind: machines, workers: {experiment.topology.workers}}}"
        faults.append((("topology", "kind"), f"backend: cluster runs on real machines, which nobody shapes; use {instead}"))
    if experiment.asked_dilation != 1:
        faults.append((("dilation",), "the time of real machines cannot be slowed down; leave it out"))
    if experiment.stragglers:
        faults.append((("stragglers",), "real machines are as fast as they are; leave it out, or use backend: emulated"))
    for part, why in OF_MACHINES.items():
        if part in experiment.model_fields_set:
            given = sorted(getattr(experiment, part).model_fields_set) or [""]
            faults += [((part, name) if name else (part,), f"{why}; leave it out") for name in given]
    return faults
