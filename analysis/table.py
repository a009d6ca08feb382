"""The long table of an experiment, one row a run: its cell in SI units, its seed, every metric of the summary, its verdict."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.fields import swept_fields
from analysis.files import whole
from analysis.load import Results
from analysis.summary import swept_columns

NAMES = {"invalid_reasons": "reason"}


def long_table(results: Results, summary: pd.DataFrame) -> pd.DataFrame:
    """Return the summary with the cell's fields in SI units and the seeds; a missing run has its name and status only."""
    fields = swept_fields(results)
    table = summary.drop(columns=swept_columns(summary)).rename(columns=NAMES)
    seeds = {run.slug: run.manifest.get("seed") for run in results.runs}
    table.insert(list(table.columns).index("repeat") + 1, "seed", table["run"].map(seeds).astype("Int64"))
    place = list(table.columns).index("workload") + 1
    for offset, field in enumerate(fields):
        values = table["run"].map(field.values)
        column = values.astype(float) if field.numbers else values.map(str, na_action="ignore").astype("string")
        table.insert(place + offset, field.column if field.column not in table.columns else f"sweep.{field.column}", column)
    return table


def write_table(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Write table.csv and table.parquet."""
    paths = [folder / "table.csv", folder / "table.parquet"]
    with whole(paths[0]) as path:
        table.to_csv(path, index=False)
    with whole(paths[1]) as path:
        table.to_parquet(path, index=False)
    return paths
