"""Make a small copy of a results folder, to be kept with the tests: python -m tests.shrink RESULTS TARGET [RUN ...].

Manifests, evaluations, events and background traffic stay as they are, and all steps; of the link samples every thirtieth of each direction
is kept, without what OpenFlow counted. Numbers are rounded to 6 digits. Logs, figures, earlier attempts and what names a process or a
folder of the machine are left out. Runs that are not named (if any is) are left out of the plan too.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pandas as pd

EVERY = 30  # link sample
DIGITS = 6
WAYS = ["link", "source", "target"]
LEFT_OUT = ("runner", "origin_mono_s")


def shrink(source: Path, target: Path, only: list[str]) -> None:
    """Copy an experiment's folder."""
    target.mkdir(parents=True)
    found = sorted(path.parent for path in source.glob("*/manifest.json") if not only or path.parent.name in only)
    experiment = _shortened(source / "experiment.json")
    experiment["planned"] = [slug for slug in experiment["planned"] if not only or slug in only]
    _write_json(experiment, target / "experiment.json")
    for run in found:
        (target / run.name).mkdir()
        _write_json(_shortened(run / "manifest.json"), target / run.name / "manifest.json")
        for table in sorted(run.glob("*.parquet")):
            frame = _rounded(pd.read_parquet(table))
            if table.stem == "links":
                frame = frame[frame.groupby(WAYS).cumcount() % EVERY == 0].drop(columns=[name for name in frame if "_tx_" in str(name)])
            _write(frame.drop(columns="openflow_t_s", errors="ignore"), target / run.name / table.name)


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Round floats to so many digits: the noise of clocks does not compress."""
    for column in frame.select_dtypes("float"):
        frame[column] = [float(f"{value:.{DIGITS}g}") for value in frame[column]]
    return frame


def _write(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False, compression="zstd", compression_level=19, write_statistics=False, store_schema=False)


def _shortened(path: Path) -> dict[str, Any]:
    content = {key: value for key, value in json.loads(path.read_text()).items() if key not in LEFT_OUT}
    if isinstance(command := content.get("command"), str):
        content["command"] = _without_folders(command)
    return content


def _without_folders(command: str) -> str:
    """Return a command with the file alone of each path, and without saying where the results went."""
    words = shlex.split(command)
    if "--results" in words:
        place = words.index("--results")
        del words[place : place + 2]
    return shlex.join(Path(word).name if "/" in word else word for word in words)


def _write_json(content: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    shrink(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
