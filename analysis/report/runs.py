"""What the report says of each run: its verdict, what its network was measured to be, its checks, and what happened in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analysis.load import Results, Run
from analysis.report.read import mapping, mappings, measure, say
from analysis.summary import number
from analysis.words import cell_words

MOST_DIRECTIONS = 16
MOST_EVENTS = 60
ROUTINE = {"started", "joined", "first_step", "warmup_done", "measured_start", "measured_end"}  # what every worker of every run says


@dataclass(frozen=True)
class Check:
    """One check of validity; its words say what is wrong, so they stand only where something is, or nothing was judged."""

    name: str
    value: str
    limit: str
    ok: bool
    note: str


@dataclass(frozen=True)
class RunPart:
    """One run in words."""

    slug: str
    anchor: str
    scheme: str
    title: str  # cell, workload, repeat
    status: str  # valid, not valid, or why it has no verdict
    valid: bool
    reasons: list[str]
    numbers: str  # the two that matter, for the closed part
    facts: list[tuple[str, str]]
    directions: list[list[str]]
    more_directions: str
    round_trips: list[list[str]]
    checks: list[Check]
    events: list[tuple[str, str]]
    more_events: int


def run_parts(results: Results, rows: dict[str, dict[Any, Any]]) -> list[RunPart]:
    """Return a part for each run there is, in planned order; `rows` are those of the summary."""
    return [_part(run, rows.get(run.slug, {}), index, len(results.workloads) > 1) for index, run in enumerate(results.runs)]


def _part(run: Run, row: dict[Any, Any], index: int, several_workloads: bool) -> RunPart:
    events = _events(run)  # before the verdict is asked: reading may find damage
    directions, more = _directions(run)
    titles = [cell_words(run.cell), run.workload if several_workloads else "", f"repeat {run.repeat}" if run.repeat > 1 else ""]
    return RunPart(
        slug=run.slug,
        anchor=f"run-{index + 1}",
        scheme=run.scheme,
        title=", ".join(part for part in titles if part),
        status=run.status if not run.complete else "valid" if run.valid else "not valid",
        valid=run.valid,
        reasons=run.invalid_reasons,
        numbers=_numbers(row),
        facts=_facts(run, row),
        directions=directions,
        more_directions=more,
        round_trips=_round_trips(run),
        checks=_checks(run),
        events=events[:MOST_EVENTS],
        more_events=max(0, len(events) - MOST_EVENTS),
    )


def _numbers(row: dict[Any, Any]) -> str:
    """Say the two numbers that matter, as far as they are known."""
    throughput, fidelity = say(row.get("throughput_samples_s")), say(row.get("fidelity"), ".3f")
    return ", ".join([f"{throughput} samples/s"] * (throughput != "-") + [f"fidelity {fidelity}"] * (fidelity != "-"))


def _facts(run: Run, row: dict[Any, Any]) -> list[tuple[str, str]]:
    manifest, cpu = run.manifest, mapping(run.manifest.get("cpu"))
    spent = [(key.removesuffix("_s"), number(value)) for key, value in cpu.items() if key not in ("wall_s", "busy_s")]
    earlier = mappings(manifest.get("earlier_attempts"))
    found = {
        "Folder": run.slug,
        "Seed": say(manifest.get("seed"), ".0f"),
        "Began": _moment(manifest.get("started")),
        "Ended": _moment(manifest.get("finished")),
        "Steps": say(_steps(run), ".0f"),
        "Step": measure(row.get("mean_step_s"), "s"),
        "Step, predicted": measure(row.get("predicted_step_s"), "s"),
        "Compute inflation": say(manifest.get("compute_inflation"), ".2f"),
        "CPU": ", ".join(f"{name} {value:.3g} s" for name, value in spent if value == value and value >= 0.05) or "-",
        "Attempts before": "; ".join(_attempt(each) for each in earlier),
        "Flags": ", ".join(key.replace("_", " ") for key in ("shared_machine", "forced", "steered", "cut_short") if manifest.get(key)),
    }
    return [(name, value) for name, value in found.items() if value not in ("", "-")]


def _directions(run: Run) -> tuple[list[list[str]], str]:
    """Return a row a direction: rate before the run, and how faithful it was under load; the bottlenecks first, then the least exact."""
    rates = {str(rate.get("direction")): rate for rate in mappings(mapping(run.manifest.get("verification")).get("rates"))}
    faith = {str(name): mapping(value) for name, value in mapping(mapping(run.manifest.get("fidelity")).get("directions")).items()}
    errors = {name: abs(_error(rate)) for name, rate in rates.items()}
    order = sorted({**rates, **faith}, key=lambda name: (name not in faith, -errors.get(name, 0.0)))
    rows = [[name, *_rate(rates.get(name, {})), *_faith(faith.get(name, {}))] for name in order]
    hidden = [errors.get(name, 0.0) for name in order[MOST_DIRECTIONS:]]
    more = f"and {len(hidden)} more directions, all within {100 * max(hidden):.2g} % of their rates" if hidden else ""
    return rows[:MOST_DIRECTIONS], more


def _rate(rate: dict[str, Any]) -> list[str]:
    return [
        measure(rate.get("configured_bps"), "bit/s"),
        measure(rate.get("measured_bps"), "bit/s"),
        f"{100 * _error(rate):+.2f} %" if rate else "-",
        f"{measure(rate.get('largest_backlog_bytes'), 'B')} / {measure(rate.get('queue_bytes'), 'B')}" if rate else "-",
    ]


def _faith(faith: dict[str, Any]) -> list[str]:
    return [say(faith.get("value"), ".3f"), say(faith.get("worst_second"), ".3f"), say(faith.get("coverage"), ".0f", 100, " %")]


def _error(rate: dict[str, Any]) -> float:
    configured, measured = number(rate.get("configured_bps")), number(rate.get("measured_bps"))
    return measured / configured - 1 if configured > 0 and measured == measured else 0.0


def _round_trips(run: Run) -> list[list[str]]:
    trips = mappings(mapping(run.manifest.get("verification")).get("rtts"))
    rows = [[f"{t.get('source')} ↔ {t.get('target')}", *(_ms(t.get(key)) for key in ("configured_s", "measured_s"))] for t in trips]
    return rows[:MOST_DIRECTIONS]


def _ms(value: Any) -> str:
    return say(value, ".2f", 1e3, " ms")


def _checks(run: Run) -> list[Check]:
    made = []
    for check in mappings(run.manifest.get("checks")):
        ok = check.get("ok") is True
        note = str(check.get("text") or "") if not ok or check.get("limit") is None else ""
        made.append(Check(str(check.get("name")), say(check.get("value"), ".4g"), say(check.get("limit"), ".4g"), ok, note))
    return made


def _events(run: Run) -> list[tuple[str, str]]:
    """Return when what happened, without what every run says; the same words at the same tenth of a second once."""
    events = run.events[~run.events["kind"].isin(ROUTINE)]
    said = [(f"{t_s:.1f} s", str(text)) for t_s, text in zip(events["t_s"], events["text"], strict=True)]
    return list(dict.fromkeys(said))


def _attempt(attempt: dict[str, Any]) -> str:
    reasons = attempt.get("invalid_reasons")
    listed = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    return str(attempt.get("reason") or listed or attempt.get("status") or "unknown")


def _steps(run: Run) -> float:
    workers = mappings(run.manifest.get("workers"))
    return number(workers[0].get("steps")) if workers else float("nan")


def _moment(value: Any) -> str:
    """Return a time of the manifest to the second, as it was written if it cannot be read."""
    try:
        return f"{datetime.fromisoformat(str(value)):%Y-%m-%d %H:%M:%S %Z}" if value else ""
    except ValueError:
        return str(value)
