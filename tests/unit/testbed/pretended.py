"""Experiments run by the real runner on a network that is only pretended."""

from __future__ import annotations

import functools
import io
import json
import os

from rich.console import Console

from testbed import machine, runner
from testbed.lock import MachineLock
from testbed.record import read_json
from testbed.runner import Options, run_experiment

DUMBBELL = {"kind": "dumbbell", "workers": 4, "bottleneck": {"rate": "40mbit", "delay": "5ms"}, "access": {"rate": "100mbit"}}
REPLAY = {"kind": "replay", "model": "resnet8", "compute": "60ms", "budget": {"seconds": 20}}
BASE = {"name": "small", "topology": DUMBBELL, "workload": REPLAY, "schemes": ["none", "fp16"]}


def make_able(monkeypatch, tmp_path):
    """Make this a machine that can run everything below 250 Mbit/s, and keep locks and caches in the test's own folder."""
    (tmp_path / "lock").mkdir(exist_ok=True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "missing_packages", list)
    monkeypatch.setattr(machine, "has_kernel_datapath", lambda: False)
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: 250e6)
    monkeypatch.setattr(machine, "congestion_controls", lambda: ["reno", "cubic"])
    monkeypatch.setattr(machine, "versions", dict)
    monkeypatch.setattr(machine, "git_commit", lambda: None)
    monkeypatch.setattr(runner, "MachineLock", functools.partial(MachineLock, folder=tmp_path / "lock"))


class PretendedExperiment:
    """An experiment file and its results, run with a network that is only pretended."""

    def __init__(self, folder, monkeypatch):
        self.file = folder / "small.yaml"
        self.results = folder / "results"
        self.folder = self.results / "small"
        self.output = io.StringIO()
        self.executed: list[str] = []
        self.stolen = 0.0  # the share of the processors that the machine's host takes
        self.waited: list[str] = []  # runs that waited for a calm moment before they were done once more
        self.verdicts: dict[str, list[list[str]]] = {}  # run -> what is wrong with each attempt; nothing unless told
        self.fault: BaseException | None = None  # of every run
        self.faults: dict[str, list[BaseException | None]] = {}  # run -> that of each attempt
        self.write(**BASE)
        monkeypatch.setattr(runner.backend, "execute", self.execute)
        monkeypatch.setattr(runner.Stolen, "share", lambda _: self.stolen)
        monkeypatch.setattr(runner, "await_calm", lambda waiting: self.waited.append(self.executed[-1]))
        monkeypatch.setattr(runner, "judge", self.judge)

    def write(self, **content):
        self.file.write_text(json.dumps(content))

    def execute(self, plan, record, tell, sandboxes, listen):
        self.executed.append(plan.run)
        tell.stage("booting the network")
        tell.tick()
        record.event(90.0, "booted", "network up")
        faults = self.faults.get(plan.run, [])
        fault = faults.pop(0) if faults else self.fault
        if fault is not None:
            raise fault

    def judge(self, plan, record):
        verdicts = self.verdicts.get(plan.run, [])
        wrong = verdicts.pop(0) if verdicts else []
        fidelity = {"value": 0.5 if wrong else 0.99}
        workers = [{"steps": 7, "train_s": 20.0}]
        return {"valid": not wrong, "invalid_reasons": wrong, "fidelity": fidelity, "workers": workers, "origin_mono_s": 100.0}

    def run(self, **options):
        console = Console(file=self.output, width=200, force_terminal=False)
        return run_experiment(self.file, Options(self.results, **options), console)

    def manifest(self, run, *below):
        return read_json(self.folder.joinpath(run, *below, "manifest.json"))
