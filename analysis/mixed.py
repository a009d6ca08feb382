"""Runs that do not belong together: of another experiment than their folder's, or that tested something else than others of their cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from analysis.run import Run

NAMING = ("name", "description", "schemes", "sweep", "seed", "repeats")  # parts of a spec that do not change what a run measures
GOALS = ("budget", "target_accuracy", "data_dir")  # the same of a workload: when a run ends is judged where it matters


def strangers(name: str, runs: Sequence[Run]) -> dict[str, str]:
    """Return the runs of an experiment's folder that do not compare with the rest of it, and why; the rest is never empty.

    What most runs of a cell tested is what the others are held against, so that one that strayed in does not hide them.
    """
    named = {run.slug: str(run.manifest.get("experiment") or name) for run in runs}
    own = name if name in named.values() else Counter(named.values()).most_common(1)[0][0]
    found = {slug: f"is of another experiment, {other}" for slug, other in named.items() if other != own}
    odd = tested_otherwise(_commonest_first([run for run in runs if run.slug not in found]))
    return found | {run.slug: f"has another {', '.join(parts)} than {first.slug}" for run, first, parts in odd}


def tested_otherwise(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, list[str]]]:
    """Yield each run whose spec differs from that of the first run of its cell and workload, that first one, and the parts that differ."""
    firsts: dict[tuple[str, str], Run] = {}
    for run in (run for run in runs if run.manifest.get("spec")):  # one that does not say what it tested is no yardstick
        first = firsts.setdefault((run.workload, run.cell_key), run)
        if parts := differing(run, first):
            yield run, first, parts


def differing(run: Run, other: Run) -> list[str]:
    """Return which parts of two runs' specs differ, but for what only names, repeats or ends a run; an old run knew fewer parts."""
    one, two = _tested(run), _tested(other)
    if run.is_old or other.is_old:
        one, two = _shared(one, two), _shared(two, one)
    return sorted(key for key in one.keys() | two.keys() if one.get(key) != two.get(key))


def _commonest_first(runs: Sequence[Run]) -> list[Run]:
    """Put those first whose spec most others of their cell have, old runs last."""
    kinds = {run.slug: (run.workload, run.cell_key, json.dumps(_tested(run), sort_keys=True)) for run in runs}
    counts = Counter(kinds.values())
    return sorted(runs, key=lambda run: (run.is_old, -counts[kinds[run.slug]]))


def _shared(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return of a spec the fields that the other has too."""
    both = {key: (value, other[key]) for key, value in one.items() if key in other}
    return {key: _shared(*pair) if all(isinstance(half, dict) for half in pair) else pair[0] for key, pair in both.items()}


def _tested(run: Run) -> dict[str, Any]:
    """Return the parts of a run's spec that decide what it measures."""
    spec: dict[str, Any] = _told({key: value for key, value in (run.manifest.get("spec") or {}).items() if key not in NAMING})
    if isinstance(spec.get("workload"), dict):
        spec["workload"] = {key: value for key, value in spec["workload"].items() if key not in GOALS}
    return spec


def _told(value: Any) -> Any:
    """Return what a spec says without what it leaves open: a newer field has its default here, and is absent in older runs."""
    if isinstance(value, dict):
        return {key: _told(below) for key, below in value.items() if below not in (None, []) and (key, below) != ("dilation", 1)}
    return [_told(below) for below in value] if isinstance(value, list) else value
