"""Write what became of the papers' claims: Markdown to read, CSV and JSON for machines, one figure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import style
from analysis.files import whole
from analysis.papers import drawing
from analysis.papers.claims import Finding, Sample

COLUMNS = (
    *("paper", "claim", "says", "standing", "published", "how", "ours", "least", "most", "unit", "ratio"),
    *("verdict", "differs", "cells", "lacking", "left_out"),
)
NAME = "reproduction"
TITLE = "# What the papers claim, and what comes out here"
FIGURE = f"![Each claim: the published range in grey, our values as points]({NAME}.png)"
HEAD = ("| claim | published | ours | ours / theirs | verdict | why they may differ |", "|---|---|---|---|---|---|")


def rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return one plain row a claim."""
    return [dict(zip(COLUMNS, _row(finding), strict=True)) for finding in findings]


def ours_words(finding: Finding) -> str:
    """Say our range."""
    if not finding.samples:
        return "-"
    unit = finding.claim.published.unit
    least, most = min(finding.values), max(finding.values)
    said = _number(least) if _number(least) == _number(most) else f"{_number(least)} to {_number(most)}"
    return f"{said}{unit}" if unit == "x" else f"{said} {unit}"


def markdown(findings: Sequence[Finding]) -> str:
    """Return a table a paper, and under it what was measured where."""
    lines: list[str] = []
    for title in dict.fromkeys(finding.paper.title for finding in findings):
        mine = [finding for finding in findings if finding.paper.title == title]
        lines += [f"## {title}", "", *HEAD]
        for finding in mine:
            claim = finding.claim
            ratio = "-" if finding.ratio is None else f"{finding.ratio:.2f}"
            measured = f"{ours_words(finding)}<br>{claim.how}"
            lines.append(f"| {claim.says} | {claim.published_words} | {measured} | {ratio} | **{finding.verdict}** | {claim.differs} |")
        lines += ["", *_details(mine), ""]
    return "\n".join(lines)


def write(findings: Sequence[Finding], folder: Path, heading: str) -> list[Path]:
    """Write reproduction.md, .csv, .json, .png and .pdf."""
    folder.mkdir(parents=True, exist_ok=True)
    table = rows(findings)
    paths = [folder / f"{NAME}.{ending}" for ending in ("md", "csv", "json")]
    with whole(paths[0]) as temporary:
        temporary.write_text(f"{TITLE}\n\n{heading}\n\n{markdown(findings)}\n{FIGURE}\n")
    with whole(paths[1]) as temporary:
        pd.DataFrame(table, columns=list(COLUMNS)).to_csv(temporary, index=False, float_format="%.6g")
    with whole(paths[2]) as temporary:
        temporary.write_text(json.dumps(table, indent=1) + "\n")
    return [*paths, *style.save(drawing.draw(findings), folder, NAME)]


def _row(finding: Finding) -> tuple[Any, ...]:
    claim, values = finding.claim, finding.values
    cells = {sample.where or "the only cell": {"value": sample.value, "margin": sample.margin} for sample in finding.samples}
    return (
        *(finding.paper.name, claim.name, claim.says, claim.standing, claim.published.words(), claim.how, ours_words(finding)),
        *(min(values, default=None), max(values, default=None), claim.published.unit, finding.ratio),
        *(finding.verdict, claim.differs, cells, finding.lacking, finding.left_out),
    )


def _details(findings: list[Finding]) -> list[str]:
    """Say each value of ours, and what does not count."""
    lines = []
    for finding in findings:
        unit = finding.claim.published.unit if finding.claim.published.unit == "x" else f" {finding.claim.published.unit}"
        if finding.samples:
            cells = "; ".join(f"{sample.where or 'the only cell'}: {_value(sample)}{unit}" for sample in finding.samples)
            lines.append(f"- {finding.claim.name}: {cells}{'; the rest was not measured' if finding.lacking else ''}")
    left_out = dict.fromkeys(text for finding in findings for text in finding.left_out)
    return lines + [f"- not counted: {text}" for text in left_out]


def _value(sample: Sample) -> str:
    margin = f" ± {sample.margin:.2g}" if sample.margin else ""
    return f"{_number(sample.value)}{margin}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 99.5 else f"{value:.3g}"
