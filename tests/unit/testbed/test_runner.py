"""The runner: it refuses with every reason at once and creates nothing, keeps earlier results, and leaves each run's folder marked."""

from __future__ import annotations

import json
import os
import signal

import pytest
from pretended import BASE, DUMBBELL, PretendedExperiment, make_able
from rich.console import Console

from testbed import machine, runner
from testbed.emulation.backend import NotFaithful, RunFailed
from testbed.errors import Interrupted
from testbed.lock import MachineLock
from testbed.machine import MachineError
from testbed.record import read_json
from testbed.runner import Options, Refusal, check, check_ceiling
from testbed.spec import from_mapping
from testbed.sweep import expand

TRAIN = {"kind": "train", "model": "resnet8", "dataset": "cifar10", "optimizer": {"name": "sgd", "lr": 0.1}, "budget": {"steps": 3}}
DEFAULT = Options()


@pytest.fixture(autouse=True)
def able_machine(monkeypatch, tmp_path):
    make_able(monkeypatch, tmp_path)


def reasons(options: Options = DEFAULT, **changes) -> list[str]:
    """Return why an experiment is refused, one sentence each."""
    experiment = from_mapping({**BASE, **changes})
    try:
        check(experiment, expand(experiment))
        if not options.force:
            check_ceiling(expand(experiment), Console(quiet=True))
    except Refusal as refusal:
        return str(refusal).splitlines()
    return []


def test_what_this_machine_can_do_is_not_refused():
    assert reasons() == []


def test_without_root_it_is_refused_with_the_way_to_get_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert len(reasons()) == 1
    assert "need root: run it with sudo" in reasons()[0]


def test_missing_packages_are_refused_with_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(machine, "missing_packages", lambda: ["iperf3"])
    assert len(reasons()) == 1
    assert "apt-get install iperf3" in reasons()[0]


def test_more_traffic_than_the_machine_carries_is_refused_with_both_numbers_and_three_ways_out(monkeypatch):
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: 200e6)
    found = reasons(schemes=["none"])
    assert found == [
        "none: the workers could ask 240 Mbit/s of the switches, and this machine carries 200 at MTU 1500: "
        "lower the rates, raise topology.mtu or dilation, or run with --force, which marks the run"
    ]


def test_the_ceiling_is_that_of_each_runs_frames(monkeypatch):
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: {1500: 200e6, 9000: 800e6}[mtu])
    assert reasons(topology={**DUMBBELL, "mtu": 9000}) == []
    found = reasons(schemes=["none"], sweep={"topology.bottleneck.rate": ["10mbit", "40mbit"]})
    assert len(found) == 1
    assert found[0].startswith("none_rate-40mbit: ")


def test_schemes_over_the_same_network_are_refused_once(monkeypatch):
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: 200e6)
    assert len(reasons()) == 1


def test_a_ceiling_that_is_too_low_is_measured_once_more_before_anything_is_refused(monkeypatch):
    asked = []

    def ceiling(mtu, kernel_datapath, measuring, anew):
        asked.append(anew)
        return 300e6 if True in asked else 200e6

    monkeypatch.setattr(machine, "ceiling_bps", ceiling)
    assert reasons() == []
    assert asked.count(True) == 1
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: asked.append(anew) or 200e6)
    assert len(reasons()) == 1
    assert asked.count(True) == 2  # once for all its runs


def test_background_traffic_counts_towards_the_ceiling(monkeypatch):
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: 245e6)
    flow = {"at": "1s", "background": {"from": "h1", "to": "h4", "protocol": "udp", "rate": "3mbit"}}
    experiment = from_mapping({**BASE, "schemes": ["none"], "conditions": [flow]})
    with pytest.raises(Refusal, match="none: the workers and background traffic could ask 246 Mbit/s of the switches"):
        check_ceiling(expand(experiment), Console(quiet=True))


def test_force_does_not_ask_for_the_ceiling(monkeypatch):
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: pytest.fail("asked"))
    assert reasons(Options(force=True)) == []


def test_a_missing_data_set_is_refused_once_with_where_to_get_it(tmp_path):
    found = reasons(workload={**TRAIN, "data_dir": str(tmp_path)})
    assert len(found) == 1
    assert f"{tmp_path} holds no whole cifar10" in found[0]
    assert "https://" in found[0]


def test_every_reason_is_told_at_once_and_nothing_is_measured_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "ceiling_bps", lambda mtu, kernel_datapath, measuring, anew: pytest.fail("measured"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    found = reasons(backend="simulated", workload={**TRAIN, "data_dir": str(tmp_path)}, hosts={"kind": "container", "image": "x"})
    assert len(found) == 4
    for words in ("simulated", "no Docker engine answers", "sudo", "cifar10"):
        assert sum(words in reason for reason in found) == 1


def test_missing_packages_are_told_without_root_too(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "missing_packages", lambda: ["iperf3"])
    assert "iperf3" in "\n".join(reasons())


def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_those_it_has(monkeypatch):
    monkeypatch.setattr(machine, "congestion_controls", lambda: ["reno", "cubic"])
    assert reasons(transport={"congestion_control": "vegas"}) == [
        "transport.congestion_control: this kernel has no vegas; it has reno, cubic"
    ]


def test_marking_is_refused_while_no_queue_can_mark():
    assert len(reasons(transport={"ecn": True})) == 1


def test_a_ceiling_that_cannot_be_measured_is_a_refusal(monkeypatch):
    def failing(mtu, kernel_datapath, measuring, anew):
        raise MachineError("the trial of this machine's 1500 failed: no htb")

    monkeypatch.setattr(machine, "ceiling_bps", failing)
    assert reasons() == ["the trial of this machine's 1500 failed: no htb"]


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    return PretendedExperiment(tmp_path, monkeypatch)


def test_a_refused_experiment_creates_nothing(experiment, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Refusal):
        experiment.run()
    assert sorted(tmp_path.rglob("*")) == before
    assert experiment.executed == []


def test_every_run_leaves_a_complete_folder_beside_the_experiments_description(experiment):
    assert experiment.run() == experiment.folder
    assert experiment.executed == ["none", "fp16"]
    described = read_json(experiment.folder / "experiment.json")
    assert described["planned"] == ["none", "fp16"]
    assert described["file"] == experiment.file.read_text()
    for run in described["planned"]:
        manifest = experiment.manifest(run)
        assert (manifest["status"], manifest["valid"], manifest["shared_machine"], manifest["forced"]) == ("complete", True, False, False)
        assert (experiment.folder / run / "events.parquet").exists()
        assert not (experiment.folder / run / "stream").exists()
    assert "done: 7 steps, fidelity 0.990" in experiment.output.getvalue()


def test_the_mark_of_force_is_in_the_manifest(experiment):
    experiment.run(force=True)
    assert experiment.manifest("none")["forced"] is True


def test_earlier_results_are_kept_under_another_name_and_the_user_is_told(experiment):
    experiment.run()
    (experiment.folder / "mine.txt").write_text("notes")
    os.utime(experiment.folder, (1e9, 1e9))
    experiment.run()
    kept = experiment.results / "small.20010909T014640"
    assert sorted(path.name for path in experiment.results.iterdir()) == ["small", kept.name]
    assert (kept / "mine.txt").read_text() == "notes"
    assert (kept / "none" / "manifest.json").exists()
    assert not (experiment.folder / "mine.txt").exists()
    assert str(kept) in experiment.output.getvalue()


def test_resuming_keeps_the_complete_runs_and_does_the_others(experiment):
    experiment.verdicts["none"] = [["slow"], ["slow"]]
    experiment.run()
    record = experiment.folder / "fp16" / "manifest.json"
    record.write_text(json.dumps({**read_json(record), "status": "failed"}))
    experiment.executed.clear()
    experiment.run(resume=True)
    assert experiment.executed == ["fp16"]
    assert [path.name for path in experiment.results.iterdir()] == ["small"]
    assert experiment.manifest("fp16")["status"] == "complete"
    assert "already there" in experiment.output.getvalue()


def test_resuming_where_nothing_is_yet_starts_anew(experiment):
    experiment.run(resume=True)
    assert experiment.executed == ["none", "fp16"]


def test_resuming_another_version_of_the_experiment_is_refused_and_changes_nothing(experiment):
    experiment.run()
    before = {path: path.read_bytes() for path in experiment.results.rglob("*") if path.is_file()}
    experiment.executed.clear()
    experiment.write(**{**BASE, "seed": 2})
    with pytest.raises(Refusal, match="run without --resume") as caught:
        experiment.run(resume=True)
    assert len(str(caught.value).splitlines()) == 1
    assert {path: path.read_bytes() for path in experiment.results.rglob("*") if path.is_file()} == before
    assert experiment.executed == []


def test_a_run_that_was_not_faithful_is_done_once_more_and_the_first_is_kept(experiment):
    experiment.verdicts["none"] = [["the bottleneck was slow"]]
    experiment.run()
    assert experiment.executed == ["none", "none", "fp16"]
    assert experiment.waited == ["none"]  # for a calm moment, and the others for nothing
    manifest = experiment.manifest("none")
    assert manifest["valid"]
    assert manifest["earlier_attempts"] == [
        {"attempt": 1, "status": "complete", "reason": None, "invalid_reasons": ["the bottleneck was slow"]}
    ]
    assert experiment.manifest("none", "earlier")["invalid_reasons"] == ["the bottleneck was slow"]
    assert experiment.manifest("fp16")["earlier_attempts"] == []
    assert "INVALID: 7 steps, fidelity 0.500; the bottleneck was slow" in experiment.output.getvalue()


def test_a_run_that_was_not_faithful_twice_stays_invalid(experiment):
    experiment.verdicts["none"] = [["slow"], ["slow again"], ["never asked"]]
    experiment.run()
    assert experiment.executed == ["none", "none", "fp16"]
    assert experiment.manifest("none")["invalid_reasons"] == ["slow again"]


def test_a_run_that_the_machines_host_spoils_has_four_attempts(experiment):
    experiment.stolen = 0.05
    experiment.verdicts["none"] = [["slow"]] * 9
    experiment.verdicts["fp16"] = [["slow"], ["slow"]]
    experiment.run()
    assert experiment.executed == ["none"] * 4 + ["fp16"] * 3
    assert [one["attempt"] for one in experiment.manifest("none")["earlier_attempts"]] == [1, 2, 3]
    assert experiment.manifest("fp16")["valid"]
    experiment.executed.clear()
    experiment.fault = RunFailed("worker 2 was killed by signal 9")  # which is nobody else's
    experiment.run()
    assert experiment.executed == ["none", "fp16"]


def test_a_network_that_fails_its_verification_is_built_once_more(experiment):
    experiment.fault = NotFaithful("the emulated network is not faithful: h1 to h2 and back takes 3.47 ms, not 4.00")
    experiment.run()
    assert experiment.executed == ["none", "none", "fp16", "fp16"]
    manifest = experiment.manifest("none")
    assert (manifest["status"], manifest["valid"]) == ("failed", False)
    assert "3.47 ms" in manifest["invalid_reasons"][0]
    assert "3.47 ms" in manifest["earlier_attempts"][0]["invalid_reasons"][0]


def test_a_failed_run_is_marked_with_its_reason_and_the_others_are_done(experiment):
    experiment.fault = RunFailed("worker 2 was killed by signal 9")
    experiment.run()
    assert experiment.executed == ["none", "fp16"]
    manifest = experiment.manifest("none")
    assert (manifest["status"], manifest["reason"], manifest["valid"]) == ("failed", "worker 2 was killed by signal 9", False)
    assert (experiment.folder / "none" / "stream" / "events-runner.jsonl").exists()
    assert "failed: worker 2" in experiment.output.getvalue()


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), Interrupted("SIGTERM")])
def test_an_interrupted_run_is_marked_and_the_others_are_not_begun(experiment, fault):
    experiment.fault = fault
    with pytest.raises(type(fault)):
        experiment.run()
    assert experiment.executed == ["none"]
    manifest = experiment.manifest("none")
    assert (manifest["status"], manifest["reason"], manifest["valid"]) == ("failed", "interrupted by the user", False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_interrupts_and_afterwards_means_what_it_did_before(experiment, monkeypatch, number):
    before = signal.getsignal(number)

    def interrupted(plan, record, tell, sandboxes, listen):
        signal.raise_signal(number)

    monkeypatch.setattr(runner.backend, "execute", interrupted)
    with pytest.raises(Interrupted):
        experiment.run()
    assert experiment.manifest("none")["reason"] == "interrupted by the user"
    assert signal.getsignal(number) == before


def test_a_sharing_run_beside_another_is_flagged(experiment, tmp_path):
    with MachineLock(False, pytest.fail, tmp_path / "lock"):
        experiment.run(share=True)
    assert experiment.manifest("none")["shared_machine"] is True
