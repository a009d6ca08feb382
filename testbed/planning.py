"""How an experiment is to be run, and what that leaves to do: reads the results folder, creates nothing."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from testbed import spec
from testbed.attempts import ATTEMPTS, Standing, standing
from testbed.errors import Refusal
from testbed.experiment_folder import manifests, refuse_other
from testbed.forecast import Forecast
from testbed.schedule import Schedule
from testbed.spec import Experiment
from testbed.sweep import Run, expand

SWEEP_REMEDY = "move that folder away or give the experiment another name, then give the same command again"
RESUME_REMEDY = "run without --resume to start anew (the old folder is kept)"


@dataclass(frozen=True)
class Options:
    """How to run."""

    results: Path = Path("results")
    share: bool = False  # do not wait for another run on this machine
    force: bool = False  # run beyond the machine's measured ceiling
    resume: bool = False  # keep the complete runs of an earlier try
    listen: tuple[str, int] | None = None  # serve the API on this address and port too
    sweep: bool = False  # resume; a run that failed is tried once more and never stops the rest
    retry: bool = False  # in a sweep: try also what has failed twice
    only: str | None = None  # as in a sweep, but one run of the plan; other machines may be at work on the others in the same folder
    repeats_end_s: float | None = None  # by time.monotonic(): a run is repeated only if that and all that is due can end before

    @property
    def persistent(self) -> bool:
        """Tell whether each run is brought to an end of its own, over as many commands as that takes."""
        return self.sweep or self.only is not None

    @property
    def keeps(self) -> bool:
        """Tell whether what is in the results folder already is gone on with."""
        return self.resume or self.persistent

    @property
    def remedy(self) -> str:
        """Say what to do where the results folder is of another experiment."""
        return SWEEP_REMEDY if self.persistent else RESUME_REMEDY

    def allows_repeat(self, taking_s: float, now_s: float) -> bool:
        """Tell whether there is time to repeat a run, if that and what is still due take so long."""
        return self.repeats_end_s is None or now_s + taking_s <= self.repeats_end_s


def plan_experiment(path: Path, options: Options) -> Schedule:
    """Tell what `run_experiment` would do; nothing is created and root is not needed."""
    experiment = spec.load(path)
    if reasons := spec.unsupported(experiment):
        raise Refusal("\n".join(reasons))
    folder = options.results / experiment.name
    if options.keeps:
        refuse_other(folder, spec.resolved(experiment), options.remedy)
    return survey(experiment, expand(experiment), folder, options)


def survey(experiment: Experiment, runs: list[Run], folder: Path, options: Options) -> Schedule:
    """Look how each run stands in the results folder."""
    found = {run.slug: manifests(folder / run.slug) if options.keeps else (None, None) for run in runs}
    standings = {slug: standing(own, earlier, options.retry) for slug, (own, earlier) in found.items()}
    if not options.persistent:  # complete is done, whatever the network was; the rest is done anew
        standings = {
            slug: Standing("done" if (found[slug][0] or {}).get("status") == "complete" else "due", ATTEMPTS, one.history)
            for slug, one in standings.items()
        }
    return Schedule(experiment, str(folder), runs, standings, Forecast(own for own, _ in found.values() if own is not None))


def chosen(runs: list[Run], only: str | None) -> list[Run]:
    """Return the runs asked for: all, or the one of this name."""
    found = [run for run in runs if only in (None, run.slug)]
    if not found:
        near = difflib.get_close_matches(str(only), [run.slug for run in runs], 3, 0.0)
        raise Refusal(f"this experiment has no run {only!r}: did you mean {' or '.join(near)}? `testbed sweep --dry-run --json` lists them")
    return found
