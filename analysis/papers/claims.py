"""What a paper claims, what was measured here, and how the two compare. Pure.

A claim is held against valid runs only. What its standing means: `fact` was read in the paper's abstract or in the authors' public
prototype, `recalled` is remembered from the paper's text and not re-read, so that its digits are no yardstick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from analysis.load import Results

TOLERANCE = 0.2  # of a published gain (a factor less 1), within which ours counts as the same
Verdict = Literal["reproduced", "in part", "weaker", "stronger", "not reproduced", "not measured"]
Experiments = Mapping[str, Results]  # by the name of the study; one that has no results is not in it


@dataclass(frozen=True)
class Sample:
    """One comparison of ours: its value, and in words where it was measured."""

    where: str
    value: float


@dataclass(frozen=True)
class Study:
    """An experiment that a paper's claims are held against."""

    experiment: str  # its file in experiments/, without its ending
    quick: Mapping[str, Any] | None  # dotted field -> what stands there at scale `quick`; None: too long for that scale


class Published(Protocol):
    """What a paper published of a quantity."""

    @property
    def unit(self) -> str:
        """Return what it is counted in."""

    def words(self) -> str:
        """Say it."""

    def ratio(self, values: list[float]) -> float | None:
        """Return ours over theirs, where that means something."""

    def verdict(self, values: list[float]) -> Verdict:
        """Judge ours, of which there is at least one."""

    def span(self) -> tuple[float, float | None]:
        """Return where it begins and, if it does, ends."""


@dataclass(frozen=True)
class Factor:
    """A gain by a factor: from `low` to `high` over the paper's cells, or `low` is None: up to `high`."""

    low: float | None
    high: float
    unit: str = "x"

    def words(self) -> str:
        """Say it."""
        return f"up to {self.high:g}{self.unit}" if self.low is None else f"{self.low:g}-{self.high:g}{self.unit}"

    def ratio(self, values: list[float]) -> float:
        """Return our largest over theirs."""
        return max(values) / self.high

    def verdict(self, values: list[float]) -> Verdict:
        """Judge by our largest if theirs is a largest, else by how many of ours lie in their range."""
        least = _of_gain(self.high if self.low is None else self.low, 1 - TOLERANCE)
        most = _of_gain(self.high, 1 + TOLERANCE)
        judged = [max(values)] if self.low is None else values
        if max(judged) < least:
            return "weaker" if max(judged) > 1 else "not reproduced"
        if min(judged) > most:
            return "stronger"
        return "reproduced" if min(judged) >= least else "in part"

    def span(self) -> tuple[float, float | None]:
        """Return where it begins and ends."""
        return (self.high if self.low is None else self.low), self.high


@dataclass(frozen=True)
class AtLeast:
    """Something that holds in every cell: our value is the bound or more."""

    bound: float
    unit: str = "x"

    def words(self) -> str:
        """Say it."""
        return f"{'over' if self.unit == 'x' else 'at least'} {self.bound:g}{self.unit if self.unit == 'x' else ' ' + self.unit}"

    def ratio(self, values: list[float]) -> None:
        """Return nothing: a bound is met or missed."""

    def verdict(self, values: list[float]) -> Verdict:
        """Judge whether it holds everywhere, somewhere or nowhere."""
        held = [value > self.bound if self.unit == "x" else value >= self.bound for value in values]
        return "reproduced" if all(held) else "in part" if any(held) else "not reproduced"

    def span(self) -> tuple[float, float | None]:
        """Return where it begins."""
        return self.bound, None


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that can be measured."""

    name: str  # short, unique in its paper
    says: str
    standing: Literal["fact", "recalled"]
    published: Published
    how: str  # what was measured here to hold it against
    studies: tuple[str, ...]
    measure: Callable[[Experiments], list[Sample]]
    differs: str  # why ours may differ: scale, hardware, reconstructed law


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
    samples: list[Sample]
    left_out: list[str]  # runs that the claim would need, and why they do not count

    @property
    def values(self) -> list[float]:
        """Return our values."""
        return [sample.value for sample in self.samples]

    @property
    def verdict(self) -> Verdict:
        """Return how ours compares."""
        return self.claim.published.verdict(self.values) if self.samples else "not measured"

    @property
    def ratio(self) -> float | None:
        """Return ours over theirs, where that means something."""
        return self.claim.published.ratio(self.values) if self.samples else None


def hold(paper: Paper, experiments: Experiments) -> list[Finding]:
    """Hold each claim of a paper against the results there are."""
    return [Finding(paper, claim, claim.measure(experiments), _left_out(claim, experiments)) for claim in paper.claims]


def _of_gain(factor: float, share: float) -> float:
    """Return the factor whose gain is a share of this one's."""
    return 1 + (factor - 1) * share


def _left_out(claim: Claim, experiments: Experiments) -> list[str]:
    """Say which runs of the claim's studies do not count."""
    said = []
    for name in claim.studies:
        results = experiments.get(name)
        if results is None:
            said.append(f"{name} was not run")
            continue
        said += [f"{name}/{slug} is missing" for slug in [*results.missing, *results.unreadable]]
        said += [f"{name}/{run.slug} {run.verdict}" for run in results.runs if not run.valid]
    return said
