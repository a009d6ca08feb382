"""What may stand in an experiment file: frozen pydantic models, unit strings at the edge, SI inside.

A field named `rate_bps` is written `rate` in the file. `model_dump()` gives SI values under SI names;
`model_dump(mode="json", by_alias=True, exclude_unset=True)` gives back what the file said.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PrivateAttr, StrictBool, ValidationInfo, field_validator, model_validator

from controller.routing import RoutingError, RoutingPolicy, check_pin, compute_paths
from testbed import units
from testbed.spec import congestion
from testbed.spec.backends import UNCHANGEABLE, faults_of
from testbed.spec.classes import LEAST_RATE_BPS
from testbed.spec.condition_fields import Surroundings
from testbed.spec.condition_list import Condition, read
from testbed.spec.conditions import Span
from testbed.spec.fields import Accuracy, Count, Dilation, Faults, Model, Number, Place, Seconds, Size, Time, Whole, is_number
from testbed.spec.stragglers import Straggler
from testbed.spec.topology import Dumbbell, LeafSpine, Machines, Star
from topologies import Network
from topologies.load import ring_load_bps
from topologies.model import SMALL_MTU

LEAST_MEMORY_BYTES = 6 << 20  # that the engine takes
IMAGE = r"^[a-z0-9][a-z0-9._/-]*(:[0-9]+/[a-z0-9._/-]+)?(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$"  # [REGISTRY/]NAME[:TAG]
CARRIED_BPS, CARRIED_LARGE_BPS = 200e6, 300e6  # through all switches in sum, by two cores, with small and with large frames


def resolve_scheme(entry: str | dict[str, Any]) -> Any:
    """Look a scheme up in the registry; imported late, so that units and networks need no workload."""
    from workloads.schemes import parse_scheme, resolve

    return resolve(parse_scheme(entry) if isinstance(entry, str) else dict(entry))


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ValueError(f"{text!r} cannot name a results folder; use letters, digits, '-', '_' and '.', and begin with a letter or digit")
    return text


def _scheme(entry: object, info: ValidationInfo) -> object:
    if not isinstance(entry, str | dict):
        raise ValueError(f"must be a scheme's name or a mapping such as {{scheme: topk, ratio: 0.1}}, not {entry!r}")
    _resolver(info)(entry)
    return entry


def _resolver(info: ValidationInfo) -> Any:
    return (info.context or {}).get("resolve_scheme", resolve_scheme)


def _folder_of(info: ValidationInfo) -> Path:
    return (info.context or {}).get("folder", Path())


class ProcessHosts(Model):
    """Each worker is a process in its own network namespace."""

    kind: Literal["process"] = "process"
    cpus: Annotated[Number, Field(gt=0)] | None = None  # processors that each worker may use; None: as many as it can


class ContainerHosts(Model):
    """Each host is a container, with a worker in it or for traffic."""

    kind: Literal["container"]
    image: Annotated[str, Field(pattern=IMAGE)] = "netsense-worker"  # as `make images` names it
    gpus: Annotated[Whole, Field(ge=0)] = 0  # of each worker
    cpus: Annotated[Number, Field(gt=0)] | None = None  # of each worker
    memory_bytes: Annotated[Size, Field(ge=LEAST_MEMORY_BYTES)] | None = Field(None, alias="memory")


class Transport(Model):
    """TCP settings, the same for every scheme."""

    congestion_control: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")] | None = None  # None: the experiment's default
    ecn: StrictBool = False


class Routing(Model):
    """How the controller chooses among paths, the same for every scheme."""

    kind: Literal["shortest", "ecmp", "groups"] = "ecmp"
    pinned: tuple[tuple[str, ...], ...] = ()  # whole paths, from host to host

    def policy(self, seed: int) -> RoutingPolicy:
        """Return what the controller is told."""
        return RoutingPolicy(self.kind, seed, self.pinned)


LEAST_CPUS = 0.01  # a millisecond in a tenth of a second is the kernel's least; its period is a second at most, where time is dilated

TrainModel = Literal["small_cnn", "resnet8", "resnet20", "resnet18"]
ReplayModel = Literal["resnet18", "vgg16", "resnet50", "resnet110", "gpt2-small", "small_cnn", "resnet8", "resnet20"]


class Optimizer(Model):
    """How the gradients are applied."""

    name: Literal["sgd", "adam"]
    lr: Annotated[Number, Field(gt=0)] = Field(description="an optimizer needs a learning rate, such as lr: 0.05")
    momentum: Annotated[Number, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[Number, Field(ge=0)] = 0.0


class ReplayBudget(Model):
    """When to stop: whichever comes first."""

    seconds: Seconds | None = None
    steps: Count | None = None

    @model_validator(mode="after")
    def _at_least_one(self) -> ReplayBudget:
        if all(value is None for _, value in self):
            raise ValueError(f"a budget needs at least one of {', '.join(type(self).model_fields)}")
        return self


class TrainBudget(ReplayBudget):
    """When to stop: whichever comes first. An accuracy alone runs until it is reached."""

    accuracy: Accuracy | None = None


class Train(Model):
    """Really train a model."""

    kind: Literal["train"]
    model: TrainModel
    dataset: Literal["fashion-mnist", "cifar10", "cifar100"]
    data_dir: str | None = None
    batch_size: Count = 32  # per worker
    optimizer: Optimizer
    budget: TrainBudget
    eval_every_s: Seconds = Field(5.0, alias="eval_every")
    eval_steps: tuple[Count, ...] = ()  # evaluated after so many steps too: where schemes are compared at equal steps
    eval_samples: Count = 1000  # of the test set, during training; the last evaluation is on all of it
    warmup_steps: Annotated[Whole, Field(ge=0)] = 8  # not recorded; fewer where they would take longer than a second
    target_accuracy: Accuracy | None = None  # what the time-to-accuracy figure asks for

    def to_job(self) -> dict[str, Any]:
        """Return the plain SI form the workers read."""
        return self.model_dump()


class Replay(Model):
    """Send a model's gradients with the compute slept."""

    kind: Literal["replay"]
    model: ReplayModel
    compute_s: Time = Field(alias="compute", description="a replay needs the compute time of one step, such as compute: 60ms")
    batch_size: Count = 32
    budget: ReplayBudget
    warmup_steps: Annotated[Whole, Field(ge=0)] = 8

    def to_job(self) -> dict[str, Any]:
        """Return the plain SI form the workers read."""
        job = self.model_dump()
        return {**job, "budget": {**job["budget"], "accuracy": None}}


class Experiment(Model):
    """One experiment file."""

    name: Annotated[str, AfterValidator(_name)]
    description: str = ""
    backend: Literal["emulated", "simulated", "cluster"] = "emulated"
    topology: Annotated[Star | Dumbbell | LeafSpine | Machines, Field(discriminator="kind")]
    hosts: Annotated[ProcessHosts | ContainerHosts, Field(discriminator="kind")] = ProcessHosts()
    workload: Annotated[Train | Replay, Field(discriminator="kind")]
    schemes: tuple[Annotated[Any, AfterValidator(_scheme)], ...]
    conditions: tuple[Condition, ...] = ()
    sweep: dict[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)
    seed: Annotated[Whole, Field(ge=0)] = 1
    repeats: Count = 1
    transport: Transport = Transport()
    routing: Routing = Routing()
    stragglers: tuple[Straggler, ...] = ()
    asked_dilation: Dilation = Field(1.0, alias="dilation")
    _folder: Path = PrivateAttr(Path())
    _among_dilated: bool = PrivateAttr(False)  # some cell of the experiment file is dilated, this one or another

    @property
    def folder(self) -> Path:
        """Return the folder that file names are relative to: the experiment file's, if it came from one."""
        return self._folder

    def network(self, seed: int) -> Network:
        """Build the network with the paths that the controller will choose, where it chooses them for TCP."""
        network = self.topology.network()
        if self.routing.kind == "groups":  # TCP's paths are not known before it takes them
            return network
        return network.with_routes(compute_paths(network, self.routing.policy(seed)).values())

    @property
    def dilation(self) -> float:
        """Return the machine's seconds to one of the experiment's; `auto` is as few as let two cores carry what the workers may send."""
        if self.asked_dilation != "auto":
            return float(self.asked_dilation)
        network = self.topology.network()
        if not network.links:  # of real machines
            return 1.0
        carried_bps = CARRIED_LARGE_BPS if self.topology.resolved_mtu() > SMALL_MTU else CARRIED_BPS
        return float(max(1, math.ceil(ring_load_bps(network) / carried_bps)))

    @property
    def congestion_control(self) -> str:
        """Return TCP's congestion control: the one that is named, or else one that all cells of the experiment can share."""
        return self.transport.congestion_control or congestion.default(self.among_dilated)

    @property
    def among_dilated(self) -> bool:
        """Tell whether time is dilated in this cell or in another of its experiment file."""
        return self._among_dilated or self.dilation > 1

    def slowdowns(self, rank: int) -> list[dict[str, float]]:
        """Return why a worker computes slowly, as its job says it."""
        reasons = [(one.slowdown, one.chance) for one in self.stragglers if one.is_about(rank) and one.slowdown is not None]
        return [{"low": low, "high": high, "chance": chance} for (low, high), chance in reasons]

    def cpus(self, rank: int) -> float | None:
        """Return how many processors a worker may use: the fewest that are said of it; None: as many as it can."""
        given = [one.cpus for one in self.stragglers if one.is_about(rank)]
        return min((cpus for cpus in (self.hosts.cpus, *given) if cpus is not None), default=None)

    @field_validator("conditions", mode="before")
    @classmethod
    def _conditions_fit(cls, raw: object, info: ValidationInfo) -> object:
        topology, workload = info.data.get("topology"), info.data.get("workload")
        if raw and isinstance(topology, Machines):
            raise ValueError(UNCHANGEABLE)
        network = topology.network() if topology else None
        around = Surroundings(
            folder=_folder_of(info),
            links=tuple(link.name for link in network.links) if network else None,
            hosts=network.all_hosts if network else None,
            end_s=workload.budget.seconds if workload else None,
            end_step=workload.budget.steps if workload else None,
        )
        return read(raw, around, network)

    @model_validator(mode="after")
    def _remember_surroundings(self, info: ValidationInfo) -> Experiment:
        self._folder = _folder_of(info)
        self._among_dilated = (info.context or {}).get("among_dilated", False)
        return self

    @model_validator(mode="after")
    def _no_link_is_too_slow(self) -> Experiment:
        slowest_bps = min((queue.min_bps for one in self.topology.network().directions() for queue in one.spec.queues()), default=math.inf)
        if slowest_bps / self.dilation < LEAST_RATE_BPS:
            most, least = slowest_bps / LEAST_RATE_BPS, units.format_rate(LEAST_RATE_BPS)
            raise Faults(
                [(("dilation",), f"must be at most {most:.3g} here: slower, a link of {units.format_rate(slowest_bps)} goes under {least}")]
            )
        return self

    @model_validator(mode="after")
    def _no_condition_is_too_slow(self) -> Experiment:
        least_bps = LEAST_RATE_BPS * self.dilation
        faults: list[tuple[Place, str]] = []
        for i, one in enumerate(self.conditions):
            rate = one.least().get("rate_bps") if isinstance(one, Span) else getattr(one, "rate_bps", None)
            if is_number(rate) and 0 < rate < least_bps:
                said = f"{units.format_rate(rate)} is too slow; rates are 0 or at least {units.format_rate(least_bps)}"
                faults.append((("conditions", i), f"{said}{' with this dilation' if self.dilation > 1 else ''}"))
        if faults:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _no_limit_is_too_tight(self) -> Experiment:
        least = LEAST_CPUS * max(1.0, self.dilation / 10)
        given: list[tuple[Place, float | None]] = [(("hosts", "cpus"), self.hosts.cpus)]
        given += [(("stragglers", i, "cpus"), one.cpus) for i, one in enumerate(self.stragglers)]
        at = f" at dilation {self.dilation:g}" if self.dilation > 10 else ""
        faults = [(place, f"must be at least {least:g}{at}: the kernel counts no less") for place, cpus in given if cpus and cpus < least]
        if faults:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _stragglers_are_there(self) -> Experiment:
        last = self.topology.workers - 1
        faults: list[tuple[Place, str]] = [
            (("stragglers", i, "worker"), f"there is no worker {one.worker}: they are numbered from 0 to {last}")
            for i, one in enumerate(self.stragglers)
            if not any(one.is_about(rank) for rank in range(last + 1))
        ]
        if faults:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _fits_the_backend(self) -> Experiment:
        faults = faults_of(self)
        if faults:
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _pins_are_paths(self) -> Experiment:
        faults: list[tuple[Place, str]] = []
        for i, path in enumerate(self.routing.pinned):
            try:
                check_pin(self.topology.network(), path)
            except RoutingError as error:
                faults.append((("routing", "pinned", i), str(error)))
        if faults:
            raise Faults(faults)
        return self

    @field_validator("schemes", mode="after")
    @classmethod
    def _some_and_none_twice(cls, schemes: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        if not schemes:
            raise ValueError("must not be empty")
        slugs = [_resolver(info)(entry).slug for entry in schemes]
        faults: list[tuple[Place, str]] = [((i,), f"scheme '{slug}' is listed twice") for i, slug in enumerate(slugs) if slug in slugs[:i]]
        if faults:
            raise Faults(faults)
        return schemes
