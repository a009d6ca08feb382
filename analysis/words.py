"""Say numbers, cells and networks in words, and gather what a figure's small print must own up to."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from analysis.load import Results, Run, dig
from analysis.queues import bottlenecks
from analysis.summary import number

LARGE = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))
MOST_SHAPES = 3  # of bottlenecks that are told one by one
INFLATION_LIMIT = 1.1  # above it the emulator's CPU has slowed the training visibly


def quantity(value: float, unit: str) -> str:
    """Return a number with an SI prefix: 40 Mbit/s, 50 kB, 5 ms."""
    if value == 0:
        return f"0 {unit}"
    scale, prefix = prefix_of(value, unit)
    digits = 0 if abs(value / scale) >= 99.95 else 3
    return f"{value / scale:.{digits}f} {prefix}{unit}" if not digits else f"{value / scale:.3g} {prefix}{unit}"


def prefix_of(value: float, unit: str) -> tuple[float, str]:
    """Return the SI prefix that suits a number, and what to divide by: 40e6 bit/s is in M."""
    steps = SMALL if unit == "s" else LARGE
    return next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])


def reached_words(reached: int, runs: int) -> str:
    """Say how many runs got to an accuracy, where too few did for a time: `reached by 1 of 2`."""
    return f"reached by {reached} of {runs}"


def cell_words(cell: dict[str, Any]) -> str:
    """Return a cell as a panel's title: `rate 10 Mbit/s, delay 5 ms`."""
    return ", ".join(f"{short_name(key)} {_value(key, value)}" for key, value in cell.items())


def network_words(run: Run) -> str:
    """Say the run's network in a few words."""
    if run.on_machines:
        ranks = run.manifest.get("machines") or []
        names = {rank.get("host") for rank in ranks}
        return f"{len(ranks)} workers on {len(names)} real machine{'s' * (len(names) != 1)}, network not shaped"
    hosts = dig(run.manifest, "network", "hosts") or dig(run.manifest, "workers") or []
    kind = dig(run.manifest, "spec", "topology", "kind")
    boxed = " in containers" if run.manifest.get("containers") else ""
    parts = [f"{len(hosts)} workers{boxed}" + (f" on a {kind}" if kind else "")]
    shapes = Counter(_shape(link.get("forward") or {}) for link in bottlenecks(run))
    shown = shapes.most_common(MOST_SHAPES)
    parts += [("bottleneck" if count == 1 else f"{count} bottlenecks") + f" of {shape}" for shape, count in shown]
    parts += [f"{shapes.total() - sum(count for _, count in shown)} other bottlenecks"] * (len(shapes) > len(shown))
    return ", ".join(parts)


def _shape(way: dict[str, Any]) -> str:
    """Say one direction's rate, delay, loss and queue."""
    parts = [
        quantity(number(way.get("rate_bps")), "bit/s") if way.get("rate_bps") else "no rate limit",
        f"{quantity(number(way.get('delay_s')), 's')} one way" if way.get("delay_s") else "",
        f"{100 * way['loss']:.3g} % loss" if way.get("loss") else "",
        f"{quantity(number(way.get('queue_bytes')), 'B')} queue" if way.get("queue_bytes") else "",
    ]
    return ", ".join(part for part in parts if part)


def slowed_words(run: Run) -> list[str]:
    """Say how the run's time and workers were slowed down, a sentence each."""
    said = [] if run.dilation == 1 else [f"Time dilated {run.dilation:g}x: emulated that much more slowly, told in the experiment's time."]
    spec = run.manifest.get("spec")
    slow = [_straggler(one) for one in dig(spec, "stragglers") or []]
    said += [f"Stragglers: {'; '.join(slow)}."] if slow else []
    cpus = dig(spec, "hosts", "cpus")
    return said + ([f"At most {cpus:g} of a processor for each worker."] if cpus else [])


def _straggler(one: dict[str, Any]) -> str:
    who = "all workers" if one.get("worker") == "all" else f"worker {one.get('worker')}"
    said = []
    if one.get("slowdown"):
        low, high = one["slowdown"]
        chance = f" in {100 * one['chance']:g} % of steps" if one.get("chance", 1) < 1 else ""
        said.append(f"{low:g}x compute{chance}" if low == high else f"{low:g}x to {high:g}x compute{chance}")
    if one.get("cpus"):
        said.append(f"at most {one['cpus']:g} of a processor")
    return f"{who} {' and '.join(said)}"


def small_print(results: Results, runs: list[Run], extra: list[str] | None = None) -> list[str]:
    """Return the sentences under a figure: what was run, what stood in for what, what to beware of."""
    networks = list(dict.fromkeys(network_words(run) for run in runs))
    sentences = [f"Experiment {results.name}: {networks[0] if len(networks) == 1 else 'network swept, see panels'}."]
    substituted = dict.fromkeys(str(text).rstrip(".") for run in runs for text in run.manifest.get("substituted") or [])
    sentences += dict.fromkeys(text for run in runs for text in slowed_words(run))
    if substituted:
        sentences.append(f"Substituted: {'; '.join(substituted)}.")
    sentences += [f"{str(note).rstrip('.')}." for note in dict.fromkeys(note for run in runs for note in run.manifest.get("notes") or [])]
    sentences += extra or []
    inflated = [(number(run.manifest.get("compute_inflation")), run) for run in runs]
    inflated = [(value, run) for value, run in inflated if not math.isnan(value) and value > INFLATION_LIMIT]
    if inflated:
        worst, run = max(inflated, key=lambda pair: pair[0])
        causes = "transport, decoding" if run.on_machines else "emulator, transport, decoding"
        sentences.append(
            f"Compute slowed under traffic ({causes}) in {_of(len(inflated), len(runs))}, "
            f"at most {worst:.2f}x ({run.label}, {run.workload})."
        )
    if any(dig(run.manifest, "prediction", "ignores") for run in runs):
        sentences.append("Background traffic competed with the workers; predictions ignore it.")
    if any(run.manifest.get("shared_machine") for run in runs):
        sentences.append("The machine was shared with other work.")
    if any(run.manifest.get("steered") for run in runs):
        sentences.append("Paths were changed by hand while a run went on.")
    if any(run.manifest.get("forced") for run in runs):
        sentences.append("Checks before the start were overridden (forced).")
    if results.apart:
        apart = len(results.apart)
        sentences.append(f"Not compared: {apart} run{'s' * (apart > 1)} of another experiment, or with other settings.")
    incomplete = sum(not run.complete for run in runs)
    if incomplete:
        sentences.append(f"Incomplete: {_of(incomplete, len(runs))}.")
    absent = len(results.missing) + len(results.unreadable)
    if absent:
        sentences.append(f"Not shown: {absent} planned run{'s' * (absent > 1)} missing or unreadable.")
    return sentences


def _of(count: int, total: int) -> str:
    return f"{count} of {total} run{'s' * (total > 1)}"


def short_name(key: str) -> str:
    """Return the last part of a field's path, without its unit, with the link it belongs to if that is not the bottleneck."""
    parts = [part for part in key.split(".") if part not in ("topology", "workload", "bottleneck")]
    last = parts[-1] if parts else key
    for unit in ("_bps", "_s", "_bytes"):
        last = last.removesuffix(unit)
    return " ".join([*parts[:-1], last]).replace("_", " ")


def _value(key: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        name = key.rsplit(".", 1)[-1]
        for unit, ends in (
            ("bit/s", ("rate", "rate_bps")),
            ("s", ("delay", "delay_s", "jitter", "jitter_s")),
            ("B", ("queue", "queue_bytes")),
        ):
            if name in ends:
                return quantity(float(value), unit)
        return f"{value:g}"
    return str(value)
