"""What a paper claims, what was measured here, and how the two compare. Pure.

A claim is held against valid runs only. What its standing means: `fact` was read in the paper's abstract or in the authors' public
prototype, `recalled` is remembered from the paper's text and not re-read, so that its digits are no yardstick, and `ours` is no sentence
of the paper at all, but what we ask of an implementation of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from analysis.load import Results

TOLERANCE = 0.2  # of a published gain (a factor less 1), within which ours counts as the same
Verdict = Literal["reproduced", "in part", "weaker", "stronger", "not reproduced", "inconclusive", "not measured"]
Experiments = Mapping[str, Results]  # by the name of the study; one that has no results is not in it


@dataclass(frozen=True)
class Sample:
    """One comparison of ours: its value, and in words where it was measured."""

    where: str
    value: float  # not a number: it should have been measured, but was not
    margin: float = 0.0  # by how much the value may be off


@dataclass(frozen=True)
class Study:
    """An experiment that a paper's claims are held against."""

    experiment: str  # its file in experiments/, without its ending
    quick: Mapping[str, Any] | None  # dotted field -> what stands there at scale `quick`; None: too long for that scale

    @property
    def narrows(self) -> bool:
        """Tell whether scale `quick` has fewer cells of it."""
        return any(field.split(".")[0] == "sweep" for field in self.quick or {})


class Published(Protocol):
    """What a paper published of a quantity."""

    @property
    def unit(self) -> str:
        """Return what it is counted in."""

    @property
    def needs_every_cell(self) -> bool:
        """Tell whether it speaks of all cells: one that was not measured then leaves it open."""

    def words(self) -> str:
        """Say it."""

    def ratio(self, values: list[float]) -> float | None:
        """Return ours over theirs, where that means something."""

    def verdict(self, samples: list[Sample]) -> Verdict:
        """Judge ours, of which there is at least one."""

    def span(self) -> tuple[float, float | None]:
        """Return where it begins and, if it does, ends."""


@dataclass(frozen=True)
class Factor:
    """A gain by a factor: from `low` to `high` over the paper's cells, both the same: that much; or `low` is None: up to `high`."""

    low: float | None
    high: float
    unit: str = "x"

    def words(self) -> str:
        """Say it."""
        before = "up to " if self.low is None else "" if self.low == self.high else f"{self.low:g}-"
        return f"{before}{self.high:g}{self.unit}"

    @property
    def needs_every_cell(self) -> bool:
        """Tell whether it speaks of all cells."""
        return self.low is not None

    def ratio(self, values: list[float]) -> float:
        """Return our largest over theirs."""
        return max(values) / self.high

    def verdict(self, samples: list[Sample]) -> Verdict:
        """Judge by our largest if theirs is a largest, else by how many of ours lie in their range: whatever ours may be off by."""
        judged = {self._judged([sample.value + side * sample.margin for sample in samples]) for side in (-1, 0, 1)}
        if judged == {"reproduced", "stronger"}:
            return "reproduced"
        return judged.pop() if len(judged) == 1 else "inconclusive"

    def _judged(self, values: list[float]) -> Verdict:
        least = _of_gain(self.high if self.low is None else self.low, 1 - TOLERANCE)
        most = _of_gain(self.high, 1 + TOLERANCE)
        judged = [max(values)] if self.low is None else values
        inside = [least <= value <= most for value in judged]
        if any(inside):
            return "reproduced" if all(inside) else "in part"
        if min(judged) <= 1:
            return "not reproduced"
        return "weaker" if max(judged) < least else "stronger" if min(judged) > most else "in part"

    def span(self) -> tuple[float, float | None]:
        """Return where it begins and ends."""
        return (self.high if self.low is None else self.low), self.high


@dataclass(frozen=True)
class AtLeast:
    """Something that holds in every cell: our value is the bound or more, and a factor more."""

    bound: float
    unit: str = "x"

    @property
    def needs_every_cell(self) -> bool:
        """Tell that it speaks of all cells."""
        return True

    def words(self) -> str:
        """Say it."""
        return f"{'over' if self.unit == 'x' else 'at least'} {self.bound:g}{self.unit if self.unit == 'x' else ' ' + self.unit}"

    def ratio(self, values: list[float]) -> None:
        """Return nothing: a bound is met or missed."""

    def verdict(self, samples: list[Sample]) -> Verdict:
        """Judge whether it holds everywhere, somewhere or nowhere, beyond doubt."""
        held = [self._is_met(sample.value - sample.margin) for sample in samples]
        missed = [not self._is_met(sample.value + sample.margin) for sample in samples]
        if any(missed):
            return "in part" if any(held) else "not reproduced"
        return "reproduced" if all(held) else "inconclusive"

    def span(self) -> tuple[float, float | None]:
        """Return where it begins."""
        return self.bound, None

    def _is_met(self, value: float) -> bool:
        return value > self.bound if self.unit == "x" else value >= self.bound


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that can be measured."""

    name: str  # short, unique in its paper
    says: str
    standing: Literal["fact", "recalled", "ours"]
    published: Published
    how: str  # what was measured here to hold it against
    studies: tuple[str, ...]
    measure: Callable[[Experiments], list[Sample]]
    differs: str  # why ours may differ: scale, hardware, reconstructed law
    over_cells: bool = False  # it speaks of every cell of its studies, not of one bandwidth or of the best

    @property
    def published_words(self) -> str:
        """Say what was published, and how we know; of what nobody published, what we ask."""
        words = self.published.words()
        return f"nothing; we ask for {words}" if self.standing == "ours" else f"{words} ({self.standing})"


@dataclass(frozen=True)
class Paper:
    """A paper, the experiments that stand for its own, and what it claims."""

    name: str
    title: str
    place: int  # among the papers, the least first
    studies: tuple[Study, ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Finding:
    """A claim held against what was measured."""

    paper: Paper
    claim: Claim
    samples: list[Sample]  # those that were measured
    lacking: int  # how many more there should be, at least
    left_out: list[str]  # runs that the claim would need, and why they do not count

    @property
    def values(self) -> list[float]:
        """Return our values."""
        return [sample.value for sample in self.samples]

    @property
    def verdict(self) -> Verdict:
        """Return how ours compares."""
        if not self.samples:
            return "not measured"
        verdict = self.claim.published.verdict(self.samples)
        is_open = self.lacking > 0 and self.claim.published.needs_every_cell and verdict in ("reproduced", "stronger")
        return "in part" if is_open else verdict

    @property
    def ratio(self) -> float | None:
        """Return ours over theirs, where that means something."""
        return self.claim.published.ratio(self.values) if self.samples else None


def hold(
    paper: Paper, experiments: Experiments, unreadable: Mapping[str, str] | None = None, narrowed: Collection[str] = ()
) -> list[Finding]:
    """Hold each claim of a paper against the results there are.

    Of studies whose results cannot be read, `unreadable` says why; `narrowed` are those that were asked for a few of their cells only.
    """
    findings = []
    for claim in paper.claims:
        samples = claim.measure(experiments)
        known = [sample for sample in samples if math.isfinite(sample.value)]
        fewer = [name for name in claim.studies if claim.over_cells and name in narrowed and name in experiments]
        left_out = [f"{name}: its other cells are too long for this scale" for name in fewer]
        left_out += _left_out(claim, experiments, unreadable or {})
        findings.append(Finding(paper, claim, known, len(samples) - len(known) + len(fewer), left_out))
    return findings


def _of_gain(factor: float, share: float) -> float:
    """Return the factor whose gain is a share of this one's."""
    return 1 + (factor - 1) * share


def _first(verdict: str) -> str:
    """Shorten what is wrong with a run: a star's every link may have been late."""
    first, *others = verdict.split("; ")
    return f"{first}, and {len(others)} more" if others else first


def _left_out(claim: Claim, experiments: Experiments, unreadable: Mapping[str, str]) -> list[str]:
    """Say which runs of the claim's studies do not count."""
    said = []
    for name in claim.studies:
        results = experiments.get(name)
        if results is None:
            said.append(f"{name}: {unreadable[name]}" if name in unreadable else f"{name} was not run")
            continue
        said += [f"{name}/{slug} is missing" for slug in [*results.missing, *results.unreadable]]
        said += [f"{name}/{run.slug} {_first(run.verdict)}" for run in results.compared.runs if run.verdict is not None]
        said += [f"{name}/{slug} {why}" for slug, why in results.apart.items()]
    return said
