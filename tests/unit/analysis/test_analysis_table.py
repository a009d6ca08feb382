"""The long table: cells in SI units, one row a run, the same in CSV and Parquet; and files that are always whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from synthetic_results import FakeRun, write_experiment

from analysis import load, summarise, write_report
from analysis.fields import swept_fields
from analysis.files import whole
from analysis.summary import VALUES
from analysis.table import long_table, write_table

LINK = {"rate_bps": 5e6, "delay_s": 0.02, "jitter_s": 0.0, "loss": 0.01, "queue_bytes": None, "queue_bdp": 1.0}
SPEC: dict[str, Any] = {
    "topology": {"kind": "dumbbell", "workers": 4, "bottleneck": {"forward": LINK, "backward": {**LINK, "rate_bps": 1e6}}},
    "workload": {"kind": "replay", "compute_s": 0.06, "model": "resnet8", "budget": {"seconds": 10.0, "steps": None}},
    "transport": {"ecn": False},
    "seed": 7,
}


def one(cell: dict[str, Any]) -> FakeRun:
    return FakeRun("none", workload="replay", cell=cell, manifest={"spec": SPEC, "seed": 7})


def fields(tmp_path: Path, *runs: FakeRun) -> dict[str, tuple[str, str, list[Any]]]:
    found = swept_fields(load(write_experiment(tmp_path / "x", list(runs))))
    return {field.path: (field.column, field.unit, list(field.values.values())) for field in found}


@pytest.mark.parametrize(
    ("path", "written", "column", "unit", "value"),
    [
        ("topology.bottleneck.rate", "5mbit", "topology.bottleneck.rate_bps", "bit/s", 5e6),
        ("topology.bottleneck.reverse.rate", "1mbit", "topology.bottleneck.reverse.rate_bps", "bit/s", 1e6),
        ("topology.bottleneck.delay", "20ms", "topology.bottleneck.delay_s", "s", 0.02),
        ("topology.bottleneck.loss", "1%", "topology.bottleneck.loss", "", 0.01),
        ("topology.bottleneck.queue", "1bdp", "topology.bottleneck.queue_bdp", "BDP", 1.0),
        ("topology.workers", 4, "topology.workers", "", 4),
        ("workload.compute", "60ms", "workload.compute_s", "s", 0.06),
        ("workload.budget.seconds", 10, "workload.budget.seconds", "s", 10.0),
        ("workload.model", "resnet8", "workload.model", "", "resnet8"),
        ("transport.ecn", "false", "transport.ecn", "", False),
        ("topology.bottleneck", "rate-5mbit", "topology.bottleneck", "", "rate-5mbit"),
        ("topology.elsewhere.rate", 3e6, "topology.elsewhere.rate_bps", "bit/s", 3e6),
    ],
)
def test_a_swept_field_is_what_the_run_resolved_it_to(tmp_path, path, written, column, unit, value):
    assert fields(tmp_path, one({path: written})) == {path: (column, unit, [value])}


def test_a_field_resolved_in_different_units_stays_as_it_was_written(tmp_path):
    size = {"topology": {"bottleneck": {"forward": {**LINK, "queue_bytes": 9000, "queue_bdp": None}}}, "workload": {"kind": "replay"}}
    runs = one({"topology.bottleneck.queue": "1bdp"}), FakeRun("3lc", cell={"topology.bottleneck.queue": "9kB"}, manifest={"spec": size})
    assert fields(tmp_path, *runs)["topology.bottleneck.queue"] == ("topology.bottleneck.queue", "", ["1bdp", "9kB"])


def test_the_table_has_cells_in_si_units_seeds_metrics_and_verdicts_the_same_in_both_files(tmp_path):
    cell = {"topology.bottleneck.rate": "5mbit", "workload.model": "resnet8", "seed": 7}
    runs = [
        one(cell),
        FakeRun("3lc", step_s=0.1, workload="replay", cell=cell, invalid_reasons=("slow",), manifest={"spec": SPEC, "seed": 7}),
    ]
    results = load(write_experiment(tmp_path / "x", runs, also_planned=("gone",)))
    table = long_table(results, summarise(results))
    head = ["run", "scheme", "scheme_label", "workload", "topology.bottleneck.rate_bps", "workload.model", "sweep.seed", "repeat", "seed"]
    assert list(table.columns) == [*head, *VALUES, "interval", "valid", "status", "reason", "apart"]
    assert table["topology.bottleneck.rate_bps"].tolist()[:2] == [5e6, 5e6]
    assert table["seed"].tolist()[:2] == [7, 7]
    assert table["throughput_samples_s"].tolist()[:2] == pytest.approx([512, 1280])
    assert table["reason"].tolist()[1] == "slow"
    assert (table["status"].tolist()[2], table["scheme"].isna().tolist()[2]) == ("missing", True)
    written = write_table(table, results.folder)
    assert [path.name for path in written] == ["table.csv", "table.parquet"]
    assert pd.read_parquet(written[1]).to_csv(index=False) == written[0].read_text()


@pytest.mark.usefixtures("few_figures")
def test_the_report_writes_the_table(folder):
    write_report(folder)
    assert pd.read_parquet(folder / "table.parquet")["run"].tolist() == pd.read_csv(folder / "summary.csv")["run"].tolist()


def test_a_file_that_cannot_be_written_leaves_the_one_that_was_there(tmp_path):
    def write_half(path):
        with whole(path) as temporary:
            temporary.write_text("ne")
            raise OSError("full")

    (tmp_path / "table.csv").write_text("old")
    with pytest.raises(OSError, match="full"):
        write_half(tmp_path / "table.csv")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("table.csv", "old")]
