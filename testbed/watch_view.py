"""What `testbed watch` shows: a run's present state as plain data, as JSON and as tables. Pure: nothing is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

SPEED_WINDOW_S = 5.0
MOST_LINKS = 24  # rows; of more, the busiest are shown
STALE_S = 1.0
BAR_WIDTH = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LOOKS = {"running": "green", "complete": "green", "failed": "red", "killed": "red"}


@dataclass(frozen=True)
class WorkerState:
    """What a worker did in its last seconds; None: not recorded."""

    rank: int
    step: int
    samples_per_s: float | None
    ratio: float | None
    exchange_share: float | None  # of the step's time, exposed communication
    loss: float | None


@dataclass(frozen=True)
class EventState:
    """Something that happened."""

    ago_s: float
    kind: str
    text: str


@dataclass(frozen=True)
class View:
    """A run at one moment."""

    experiment: str
    run: str
    scheme: str
    status: str  # running, complete, failed, killed
    reason: str | None  # why it failed or is invalid
    valid: bool | None  # None: not judged yet
    started: str
    seconds: float | None  # since it started, while it runs
    links: tuple[dict[str, Any], ...] = ()  # as the API has them
    no_links: str | None = None  # why there are none
    workers: tuple[WorkerState, ...] = ()
    events: tuple[EventState, ...] = ()
    dilation: float = 1.0  # workers are in the experiment's time, links and the rest in the machine's

    @property
    def is_running(self) -> bool:
        """Tell whether the run goes on."""
        return self.status == "running"

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def worker_state(rank: int, rows: Sequence[dict[str, Any]]) -> WorkerState | None:
    """Sum up the last rows of a worker's steps; None without a measured step."""
    if not rows:
        return None
    last = rows[-1]
    recent = [row for row in rows if row["train_s"] > last["train_s"] - SPEED_WINDOW_S]
    seconds = sum(row["step_s"] for row in recent)
    return WorkerState(
        rank=rank,
        step=last["step"],
        samples_per_s=sum(row["samples"] for row in recent) / seconds if seconds > 0 else None,
        ratio=last["ratio"],
        exchange_share=sum(row["exchange_s"] for row in recent) / seconds if seconds > 0 else None,
        loss=last["loss"],
    )


def end_sentence(view: View) -> Text:
    """Tell how a run ended."""
    name = f"{view.experiment}/{view.run}"
    match view.status:
        case "complete" if view.valid:
            return Text(f"{name} is complete and valid", "green")
        case "complete":
            return Text(f"{name} is complete but INVALID: {view.reason}", "red")
        case "killed":
            return Text(f"{name} was killed before it ended; `testbed clean` marks it", "red")
        case status:
            return Text(f"{name} {status}: {view.reason}", "red")


def render(view: View) -> RenderableType:
    """Draw a run's links, workers and last events."""
    parts: list[RenderableType] = [_headline(view)]
    if view.links:
        parts += ["", *_links(view.links)]
    elif view.no_links:
        parts += ["", Text(view.no_links, "dim")]
    if view.workers:
        parts += ["", _workers(view.workers)]
    if view.events:
        parts += ["", _events(view.events)]
    return Group(*parts)


def _headline(view: View) -> Text:
    if not view.is_running:
        return end_sentence(view)
    line = Text.assemble((f"{view.experiment}/{view.run}", "bold"), f"  {view.scheme}  ", (view.status, _LOOKS.get(view.status, "")))
    if view.seconds is not None:
        line.append(f"  {view.seconds:.0f} s")
    speeds = [worker.samples_per_s for worker in view.workers if worker.samples_per_s is not None]
    if speeds:
        line.append(f"  {sum(speeds):.1f} samples/s")
    if view.dilation != 1:
        line.append(f"  time dilated {view.dilation:g}x (links in the machine's time)", "yellow")
    return line


def _links(links: Sequence[dict[str, Any]]) -> list[RenderableType]:
    table = Table("link", "configured", "rate", "", "used", "backlog", "", "drops/s", box=None, padding=(0, 1))
    for column in (1, 2, 4, 5, 7):
        table.columns[column].justify = "right"
    for link in busiest(links):
        filled = _share(link["backlog_bytes"], link["queue_bytes"])
        stale = link["age_s"] is None or link["age_s"] > STALE_S
        table.add_row(
            Text(link["id"]),
            _number(link["configured_bps"], "{:.2f} Mbit/s", 1e-6),
            _number(link["sent_bps"], "{:.2f} Mbit/s", 1e-6),
            Text(bar(link["utilisation"]), "cyan"),
            _number(link["utilisation"], "{:.0f} %", 100),
            _number(link["backlog_ms"], "{:.1f} ms"),
            Text(bar(filled), "red" if filled is not None and filled > 0.9 else "yellow"),
            Text(_number(link["drops_per_s"], "{:.0f}"), "red" if link["drops_per_s"] else ""),
            style="dim" if stale else "",
        )
    hidden = len(links) - MOST_LINKS
    return [table, Text(f"and {hidden} less busy", "dim")] if hidden > 0 else [table]


def busiest(links: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the links to show, in their own order."""
    order = sorted(range(len(links)), key=lambda i: (-(links[i]["backlog_ms"] or 0.0), -(links[i]["utilisation"] or 0.0)))
    return [links[i] for i in sorted(order[:MOST_LINKS])]


def _workers(workers: Sequence[WorkerState]) -> Table:
    table = Table("worker", "step", "samples/s", "ratio", "exchange", "loss", box=None, padding=(0, 1))
    for column in table.columns:
        column.justify = "right"
    for one in workers:
        table.add_row(
            str(one.rank),
            str(one.step),
            _number(one.samples_per_s, "{:.1f}"),
            _number(one.ratio, "{:.4g}"),
            _number(one.exchange_share, "{:.0f} %", 100),
            _number(one.loss, "{:.3f}"),
        )
    return table


def _events(events: Sequence[EventState]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right")
    for event in events:
        table.add_row(Text(f"{event.ago_s:.0f} s ago", "dim"), Text(event.kind), Text(event.text))
    return table


def bar(fraction: float | None) -> str:
    """Draw a fraction; all of the bar is 1."""
    if fraction is None:
        return ""
    eighths = round(min(1.0, max(0.0, fraction)) * BAR_WIDTH * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _number(value: float | None, form: str, scale: float = 1.0) -> str:
    return "-" if value is None else form.format(value * scale)
