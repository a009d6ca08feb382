"""Experiment files: what may stand in one, how it is read, and what is wrong with it.

`load` validates a file and every cell of its sweep before anything starts; `resolved` is what the manifest keeps.
"""

from testbed.spec.loading import Problem, SpecError, from_mapping, load, resolved, unsupported, variants
from testbed.spec.models import Experiment, Replay, Train, resolve_scheme
from testbed.spec.topology import Dumbbell, LeafSpine, LinkModel, Machines, Star

__all__ = [
    "Dumbbell",
    "Experiment",
    "LeafSpine",
    "LinkModel",
    "Machines",
    "Problem",
    "Replay",
    "SpecError",
    "Star",
    "Train",
    "from_mapping",
    "load",
    "resolve_scheme",
    "resolved",
    "unsupported",
    "variants",
]
