"""Expand an experiment into its runs: schemes x sweep cells x repeats, ordered so that no scheme is favoured. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.spec import Experiment, resolve_scheme, variants
from testbed.spec.loading import Resolver


@dataclass(frozen=True)
class Run:
    """One scheme in one cell, once."""

    experiment_name: str
    slug: str  # folder name, unique in the experiment
    scheme: Any  # workloads.schemes.ResolvedScheme
    cell: dict[str, str]  # swept field -> label of its value here
    repeat: int  # from 1
    seed: int  # the same for every scheme of a repeat, so that comparisons are paired
    experiment: Experiment  # this cell's values in place, no sweep, this scheme only


def expand(experiment: Experiment, resolve: Resolver = resolve_scheme) -> list[Run]:
    """List the runs in the order they are made.

    For each repeat, for each cell, all schemes side by side, so that drift of the machine meets them alike; the scheme that
    begins rotates with the repeat, so that none is always first.
    """
    cells = list(variants(experiment, resolve))
    labels = {field: label_values(values) for field, values in experiment.sweep.items()}
    names = short_names(list(experiment.sweep))
    runs = []
    for repeat in range(experiment.repeats):
        shift = repeat % len(experiment.schemes)
        for indices, variant in cells:
            cell = {field: labels[field][index] for field, index in indices.items()}
            for entry in experiment.schemes[shift:] + experiment.schemes[:shift]:
                scheme = resolve(entry)
                parts = [scheme.slug]
                for field, label in cell.items():
                    by_kind = any(isinstance(value, Mapping) and "kind" in value for value in experiment.sweep[field])
                    parts.append(_safe(label if by_kind else f"{names[field]}-{label}"))
                if experiment.repeats > 1:
                    parts.append(f"r{repeat + 1}")
                one = variant.model_copy(update={"schemes": (entry,)})
                runs.append(Run(experiment.name, "_".join(parts), scheme, cell, repeat + 1, variant.seed + repeat, one))
    return [_renamed(run, n) for run, n in zip(runs, _occurrences([run.slug for run in runs]), strict=True)]


def label_values(values: Sequence[Any]) -> list[str]:
    """Label a swept field's values: scalars as written, mappings by their kind, told apart by what differs where kinds agree."""
    labels = [_label(value) for value in values]
    counts = Counter(labels)
    for i, value in enumerate(values):
        if counts[labels[i]] > 1 and isinstance(value, Mapping):
            rivals = [_leaves(other) for j, other in enumerate(values) if j != i and isinstance(other, Mapping)]
            differing = [leaf for path, leaf in _leaves(value).items() if any(rival.get(path) != leaf for rival in rivals)]
            labels[i] = "-".join(dict.fromkeys([labels[i], *differing]))
    return [label if n == 1 else f"{label}-{n}" for label, n in zip(labels, _occurrences(labels), strict=True)]


def short_names(fields: list[str]) -> dict[str, str]:
    """Name each swept field by the end of its path, by as much of it as tells it from the others."""
    names = {}
    for field in fields:
        parts = field.split(".")
        others = [other.split(".") for other in fields if other != field]
        length = next((n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in others)), len(parts))
        names[field] = ".".join(parts[-length:])
    return names


def _label(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value["kind"]) if "kind" in value else "-".join(f"{path}-{leaf}" for path, leaf in _leaves(value).items()) or "empty"
    if isinstance(value, list | tuple):
        return "-".join(map(_label, value)) or "empty"
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)


def _leaves(value: Any, prefix: str = "") -> dict[str, str]:
    """Flatten a mapping to dotted path -> label of the leaf."""
    if not isinstance(value, Mapping):
        return {prefix: _label(value)}
    return {path: leaf for key, below in value.items() for path, leaf in _leaves(below, f"{prefix}.{key}".lstrip(".")).items()}


def _safe(text: str) -> str:
    """Keep letters, digits, dot, plus and minus; a folder name must not need quoting."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text.replace("%", "pct")).strip("-.") or "x"


def _occurrences(words: list[str]) -> list[int]:
    """Return for each word which occurrence of it this is, from 1."""
    seen: Counter[str] = Counter()
    result = []
    for word in words:
        seen[word] += 1
        result.append(seen[word])
    return result


def _renamed(run: Run, occurrence: int) -> Run:
    """Tell apart runs whose labels differ only in characters a folder name cannot have."""
    return run if occurrence == 1 else Run(**{**vars(run), "slug": f"{run.slug}_{occurrence}"})
