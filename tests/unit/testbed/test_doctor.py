"""The doctor: every lack has a remedy, and only a lack keeps experiments from running."""

from __future__ import annotations

import os
import re

import pytest

from testbed import doctor, machine
from testbed.containers import engine
from testbed.doctor import Finding, able, examine
from tests.unit.testbed.containers.test_containers_order import ANSWERS, GOES_AWAY, GoingEngine


@pytest.mark.parametrize(
    ("states", "verdict"),
    [(["ok"], True), (["ok", "substituted", "absent"], True), (["ok", "lacking"], False), (["lacking"], False), ([], True)],
)
def test_experiments_can_run_unless_something_is_lacking(states, verdict):
    assert able([Finding(str(i), state, None, "") for i, state in enumerate(states)]) is verdict


@pytest.fixture
def examined(monkeypatch):
    """Examine a machine of which only root and packages vary; measuring is a failure."""

    def examined(root: bool, missing: tuple[str, ...], measure: bool) -> dict[str, Finding]:
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        monkeypatch.setattr(machine, "missing_packages", lambda: list(missing))
        monkeypatch.setattr(machine, "trial", lambda *_: pytest.fail("measured"))
        for name in ("_dataset", "_congestion_control", "_gpu"):
            monkeypatch.setattr(doctor, name, lambda name=name: Finding(name, "ok", None, ""))
        monkeypatch.setattr(doctor, "_docker", lambda: iter([Finding("_docker", "ok", None, "")]))
        return {finding.name: finding for finding in examine(measure)}

    return examined


@pytest.mark.parametrize(("root", "missing", "lacks"), [(False, (), "root"), (True, ("iperf3",), "packages")])
def test_without_root_or_packages_nothing_is_measured_and_the_remedy_is_told(examined, root, missing, lacks):
    findings = examined(root, missing, measure=True)
    assert not able(list(findings.values()))
    assert {name for name, finding in findings.items() if finding.state == "lacking"} == {lacks, "emulation"}
    assert all(finding.remedy for finding in findings.values() if finding.state == "lacking")


def test_measuring_nothing_is_no_lack(examined):
    findings = examined(True, (), measure=False)
    assert able(list(findings.values()))
    assert "not asked for" in findings["emulation"].text


def test_missing_packages_are_named_in_the_remedy(examined):
    assert "apt-get install iperf3 mininet" in examined(True, ("iperf3", "mininet"), measure=False)["packages"].remedy


def test_a_trial_that_fails_is_a_lack_with_its_reason(monkeypatch):
    def failing(what, kernel):
        raise machine.MachineError("no htb here")

    monkeypatch.setattr(machine, "trial", failing)
    found = doctor._trial("queue disciplines", "qdiscs", False, lambda found: ("works", "ok"), "use another kernel")
    assert (found.state, found.text, found.remedy) == ("lacking", "no htb here", "use another kernel")


def test_what_works_needs_no_remedy(monkeypatch):
    monkeypatch.setattr(machine, "trial", lambda what, kernel: True)
    found = doctor._trial("queue disciplines", "qdiscs", False, lambda found: ("works", "ok"), "use another kernel")
    assert (found.state, found.value, found.remedy) == ("ok", True, None)


@pytest.mark.parametrize("at", ["info", "inspect_image"])
def test_the_doctor_finds_no_engine_where_one_goes_away(monkeypatch, at):
    monkeypatch.setattr(engine, "connect", lambda: GoingEngine(at, **ANSWERS))
    (finding,) = doctor._docker()
    assert (finding.name, finding.state, finding.remedy) == ("docker", "absent", "only container workers need it")
    assert re.match(GOES_AWAY, finding.text)


def test_the_doctor_tells_of_an_engine_and_its_image(monkeypatch):
    monkeypatch.setattr(engine, "connect", lambda: GoingEngine("never", **ANSWERS))
    assert [(one.name, one.state) for one in doctor._docker()] == [("docker", "ok"), ("worker image", "ok"), ("gpu runtime", "absent")]


def test_the_doctor_finds_a_rootless_engine_to_be_none_for_workers(monkeypatch):
    monkeypatch.setattr(engine, "connect", lambda: GoingEngine("never", info={"SecurityOptions": ["name=rootless"]}))
    (finding,) = doctor._docker()
    assert finding.state == "absent"
    assert "have DOCKER_HOST name the system's" in finding.text
