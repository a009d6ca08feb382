"""How long a report takes, and frames of many link samples: on sweeps made of the stored runs in tests/data."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

DATA = Path(__file__).resolve().parent / "data"
RATES = ("5mbit", "10mbit", "20mbit", "40mbit", "80mbit")
DELAYS = ("1ms", "5ms", "10ms", "20ms", "50ms")
SCHEMES = ("none", "topk-0.1", "topk-0.01", "netsense")
REPORT_SAMPLES = 20_000  # link samples a run, as many as these runs really had
LOAD_SAMPLES = 100_000
MEASURE = """
import resource, time
import analysis
start = time.perf_counter()
{work}
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(time.perf_counter() - start, sum(each.ru_utime + each.ru_stime for each in used))
"""
LOOK_EVERY_S = 0.05
WORKS = {
    "all columns": 'frame = analysis.load("{folder}").frames.links',
    "3 columns": 'frame = analysis.load("{folder}").frames.read("links", ["t_s", "link", "backlog_bytes"])',
    "all columns, run by run": 'for frame in analysis.load("{folder}").frames.each("links"): pass',
}


def section() -> str:
    """Return the part of docs/benchmarks.md about the analysis."""
    with tempfile.TemporaryDirectory() as below:
        folder = make_sweep(Path(below) / "sweep")
        give_samples(folder, REPORT_SAMPLES)
        report_s, report_cpu_s, report_mb = measure(f'analysis.write_report("{folder}")')
        size_mb = (folder / "report.html").stat().st_size / 1e6
        give_samples(folder, LOAD_SAMPLES)
        loads = {what: measure(work.format(folder=folder)) for what, work in WORKS.items()}
    rows = [f"| {what} | {seconds:.1f} | {peak_mb:.0f} |" for what, (seconds, _, peak_mb) in loads.items()]
    return f"""## How long does a report take?
A sweep of 100 training runs of 12 s with {REPORT_SAMPLES} link samples each, made of stored ones, 4 schemes in 25 cells:
{report_s:.1f} s ({report_cpu_s:.1f} s of processors) for summary, tables, figures (PNG and PDF) and report.html, of {size_mb:.1f} MB;
{report_mb:.0f} MB of memory, all its processes together, seen every 50 ms. Asked for: under 20 s and 1 GB.

## How long does it take to load ten million link samples?
100 runs of {LOAD_SAMPLES} samples; memory of the whole process at its largest, seen every 50 ms. Asked for: under 10 s.

| frame | seconds | MB |
|---|---|---|
{chr(10).join(rows)}
"""


def make_sweep(folder: Path) -> Path:
    """Make a sweep of 100 runs: stored runs under other names, as if on 25 networks."""
    folder.mkdir(parents=True)
    planned = []
    for index, (rate, delay) in enumerate((rate, delay) for rate in RATES for delay in DELAYS):
        for scheme in SCHEMES:
            source = DATA / "train" / f"{scheme}_r{1 + index % 2}"
            slug = f"{scheme}_rate-{rate}_delay-{delay}"
            shutil.copytree(source, folder / slug)
            manifest = json.loads((source / "manifest.json").read_text())
            for way in ("forward", "backward"):
                forms = {"rate_bps": float(rate.removesuffix("mbit")) * 1e6, "delay_s": float(delay.removesuffix("ms")) / 1e3}
                manifest["spec"]["topology"]["bottleneck"][way].update(forms)
            cell = {"topology.bottleneck.rate": rate, "topology.bottleneck.delay": delay}
            manifest.update(run=slug, experiment=folder.name, cell=cell, repeat=1)
            (folder / slug / "manifest.json").write_text(json.dumps(manifest))
            planned.append(slug)
    experiment = json.loads((DATA / "train" / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps(experiment | {"name": folder.name, "planned": planned}))
    return folder


def give_samples(folder: Path, count: int) -> None:
    """Give each run of a folder so many link samples: those it has, again and again a moment later."""
    for path in folder.glob("*/links.parquet"):
        links = pd.read_parquet(path)
        copies = -(-count // len(links))
        gap_s = links["t_s"].diff().max() / copies
        later = [links.assign(t_s=links["t_s"] + place * gap_s) for place in range(copies)]
        pd.concat(later).sort_values("t_s", kind="stable")[:count].to_parquet(path, index=False)


def measure(work: str) -> tuple[float, float, float]:
    """Return seconds by the clock and of processors, and the most MB that its processes had at a time, of a piece of work."""
    command = [sys.executable, "-c", MEASURE.format(work=work)]
    peak_mb = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=DATA.parents[1]) as process:
        while process.poll() is None:
            peak_mb = max(peak_mb, memory_mb(process.pid))
            time.sleep(LOOK_EVERY_S)
        assert process.stdout is not None and process.returncode == 0
        seconds, cpu_s = map(float, process.stdout.read().split())
    return seconds, cpu_s, peak_mb


def memory_mb(pid: int) -> float:
    """Return what a process and those it has forked have in memory, what they share counted once; 0 for one that has ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        rows = dict(line.split(":") for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    except (OSError, ValueError):
        return 0.0
    return int(rows["Pss"].removesuffix("kB")) / 1024 + sum(memory_mb(int(child)) for child in children)


if __name__ == "__main__":
    print(section())
