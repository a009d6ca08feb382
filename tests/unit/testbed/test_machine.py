"""What this machine lacks, and its ceiling: measured once for each frame size, and again when the machine is another."""

from __future__ import annotations

import os
import subprocess

import pytest

from testbed import machine
from testbed.machine import MachineError


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Return a function that installs tools; no other tool is on this machine."""
    folders = [tmp_path / "bin", tmp_path / "system"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("PATH", str(folders[0]))
    monkeypatch.setattr(machine, "SYSTEM_PATH", str(folders[1]))

    def install(*names: str, system: bool = False) -> None:
        for name in names:
            tool = folders[system] / name
            tool.touch()
            tool.chmod(0o755)

    return install


def test_on_an_empty_machine_every_package_is_missing_and_named_once(tools):
    assert machine.missing_packages() == ["ethtool", "iperf3", "iproute2", "iputils-ping", "mininet", "openvswitch-switch"]


def test_a_package_is_missing_if_any_of_its_tools_is(tools):
    tools("mnexec", "ovs-vswitchd", "ovs-vsctl", "ip", "tc", "ethtool", "ping", "iperf3")
    assert machine.missing_packages() == ["openvswitch-switch"]
    tools("ovsdb-server")
    assert machine.missing_packages() == []


def test_tools_outside_of_a_users_path_are_found(tools):
    tools(*machine.TOOLS, system=True)
    assert machine.missing_packages() == []


def test_emulation_needs_root(tools, monkeypatch):
    tools(*machine.TOOLS)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="sudo"):
        machine.require_emulation()


def test_emulation_needs_its_packages_and_tells_how_to_get_them(tools, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(MachineError, match="apt-get install ethtool iperf3 iproute2"):
        machine.require_emulation()
    tools(*machine.TOOLS)
    machine.require_emulation()


def carried(faithful, stolen=0.0):
    """Return what a trial of a rate tells."""
    return {"carried": faithful, "delivered": 0.99 if faithful else 0.91, "coverage": 0.8, "stolen": stolen}


@pytest.fixture
def trials(tmp_path, monkeypatch):
    """Keep the ceiling in a folder of the test's own; return the trials made on a machine that carries 60 and 250 Mbit/s."""
    made = []

    def trial(what, kernel_datapath):
        mtu, rate_bps = what.split("@")
        made.append((int(mtu), float(rate_bps)))
        return carried(float(rate_bps) <= {1500: 60e6, 9000: 250e6}[int(mtu)])

    monkeypatch.setattr(machine, "PAUSE_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "trial", trial)
    return made


@pytest.mark.parametrize(("mtu", "size", "rate_bps"), [(1500, 1500, 56.25e6), (576, 1500, 56.25e6), (9000, 9000, 250e6)])
def test_the_ceiling_is_the_highest_rate_delivered_with_frames_of_about_the_size_asked_for(trials, mtu, size, rate_bps):
    assert machine.ceiling_bps(mtu, kernel_datapath=False) == rate_bps * machine.RING_TRAVERSALS
    assert {made for made, _ in trials} == {size}


def test_a_rate_that_fails_is_tried_again_before_it_is_called_the_ceiling(trials):
    machine.ceiling_bps(1500, False)
    assert trials == [(1500, rate * 1e6) for rate in (25, 50, 75, 75, 62.5, 62.5, 56.25)]


def test_a_machine_busy_for_a_while_is_waited_for(trials, monkeypatch):
    working, luck = machine.trial, iter([False] * (machine.PATIENT_TRIES - 1))
    monkeypatch.setattr(machine, "trial", lambda what, kernel: carried(next(luck)) if luck.__length_hint__() else working(what, kernel))
    assert machine.ceiling_bps(1500, False) == 337.5e6


def test_a_machine_that_stays_busy_is_told_with_the_numbers_and_nothing_is_kept(trials, monkeypatch, tmp_path):
    tried = []
    monkeypatch.setattr(machine, "trial", lambda what, kernel: tried.append(what) or carried(False, stolen=0.34))
    with pytest.raises(MachineError, match=r"of 25 Mbit/s it delivered 91.0%.*34% of its processors taken by its host; stop other work"):
        machine.ceiling_bps(1500, False)
    assert len(tried) == machine.PATIENT_TRIES
    assert not (tmp_path / "cache" / "netsense-testbed" / "machine.json").exists()


def test_a_rate_is_not_called_too_high_for_what_the_host_took_away(trials, monkeypatch):
    working, stolen = machine.trial, iter([True] * 4)

    def trial(what, kernel):
        return carried(False, stolen=0.2) if what == "1500@50000000" and next(stolen, False) else working(what, kernel)

    monkeypatch.setattr(machine, "trial", trial)
    assert machine.ceiling_bps(1500, False) == 337.5e6


def test_the_ceiling_is_measured_once_for_each_frame_size_and_says_so(trials):
    said = []
    found = [machine.ceiling_bps(mtu, False, said.append) for mtu in (1500, 9000, 1500, 9000, 1400)]
    assert found == [337.5e6, 1500e6, 337.5e6, 1500e6, 337.5e6]
    assert len(said) == 2
    assert len(trials) == 7 + 7


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [("platform", "release", lambda: "9.9"), ("os", "cpu_count", lambda: 999), (None, "_cpu_model", lambda: "abacus")],
)
def test_on_another_kernel_or_cpu_the_ceiling_is_measured_again(trials, monkeypatch, owner, name, value):
    machine.ceiling_bps(1500, False)
    monkeypatch.setattr(getattr(machine, owner) if owner else machine, name, value)
    once = len(trials)
    machine.ceiling_bps(1500, False)
    assert len(trials) == 2 * once


def test_another_datapath_is_measured_for_itself(trials):
    machine.ceiling_bps(1500, False)
    once = len(trials)
    machine.ceiling_bps(1500, True)
    assert len(trials) == 2 * once


def test_a_forgotten_or_damaged_ceiling_is_measured_again(trials, tmp_path):
    machine.forget_ceiling()  # there is none yet
    machine.ceiling_bps(1500, False)
    once = len(trials)
    machine.forget_ceiling()
    machine.ceiling_bps(1500, False)
    (tmp_path / "cache" / "netsense-testbed" / "machine.json").write_text("{")
    machine.ceiling_bps(1500, False)
    assert len(trials) == 3 * once


def test_of_two_measurements_the_higher_is_kept(trials, monkeypatch):
    working = machine.trial
    monkeypatch.setattr(machine, "trial", lambda what, kernel: carried(what == "1500@25000000"))
    assert machine.ceiling_bps(1500, False) == 150e6
    monkeypatch.setattr(machine, "trial", working)
    said = []
    assert machine.ceiling_bps(1500, False, said.append, anew=True) == 337.5e6
    assert "once more" in said[0]
    monkeypatch.setattr(machine, "trial", lambda what, kernel: carried(what == "1500@25000000"))
    assert machine.ceiling_bps(1500, False, anew=True) == machine.ceiling_bps(1500, False) == 337.5e6


def test_a_trial_that_fails_is_not_kept(trials, monkeypatch):
    working = machine.trial

    def failing(what, kernel_datapath):
        raise MachineError("no luck")

    monkeypatch.setattr(machine, "trial", failing)
    with pytest.raises(MachineError):
        machine.ceiling_bps(1500, False)
    monkeypatch.setattr(machine, "trial", working)
    assert machine.ceiling_bps(1500, False) == 337.5e6


@pytest.mark.parametrize(
    ("stdout", "stderr", "words"),
    [('noise\n{"error": "htb is missing"}\n', "", "htb is missing"), ("", "Traceback: boom", "boom"), ("not json", "bang", "bang")],
)
def test_a_trial_that_fails_says_why(monkeypatch, stdout, stderr, words):
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, stdout, stderr))
    with pytest.raises(MachineError, match=f"this machine's qdiscs failed: .*{words}"):
        machine.trial("qdiscs", False)


def test_a_trials_result_is_its_last_line(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, 'noise\n{"result": 5.0}\n', ""))
    assert machine.trial("1500", True) == 5.0


def test_a_trial_that_hangs_says_so(monkeypatch):
    def hanging(command, **_):
        raise subprocess.TimeoutExpired(command, 120)

    monkeypatch.setattr(subprocess, "run", hanging)
    with pytest.raises(MachineError):
        machine.trial("1500", False)
