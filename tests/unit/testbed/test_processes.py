"""Processes: which ancestors merely launched us, and whether a process written down earlier is still the same one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from testbed.processes import _started, ancestors, is_running, launchers, may_run, this_process

TERMINAL = (900, "bash", ["bash", ""])


def chain(*commands: str) -> list[tuple[int, str, list[str]]]:
    """Make a chain of ancestors, the nearest first, numbered 101, 102... below an interactive shell."""
    found = []
    for number, command in enumerate(commands, 101):
        arguments = command.split(" ")
        found.append((number, arguments[0].lstrip("-").rpartition("/")[2], [*arguments, ""]))
    return [*found, TERMINAL]


def test_make_and_sudo_and_the_shell_between_them_are_launchers():
    commands = ("sudo -E testbed run quick.yaml", "sudo -E testbed run quick.yaml", "/bin/sh -c testbed", "make experiment")
    assert launchers(chain(*commands)) == [101, 102, 103, 104]


@pytest.mark.parametrize(
    "shell",
    [
        "sh -c testbed",
        "/bin/dash -c testbed",
        "bash -lc testbed",
        "bash -ec testbed",
        "dash -e -c testbed",
        "bash -e -u -x -c testbed",
        "bash +e -c testbed",
        "bash -eo pipefail -c testbed",
        "bash -euo pipefail -c testbed",
        "bash -O extglob -c testbed",
        "bash --login -c testbed",
        "bash --noprofile --norc -c testbed",
        "bash --rcfile /dev/null -c testbed",
        "-bash -c testbed",
        "zsh -fc testbed",
    ],
)
def test_a_shell_that_was_given_a_command_is_a_launcher(shell):
    assert launchers(chain(shell)) == [101]


@pytest.mark.parametrize(
    "shell",
    [
        "bash",
        "-bash",
        "bash -i",
        "bash -l",
        "bash --login",
        "bash --noediting -i",
        "bash --norc",
        "bash --rcfile /dev/null",
        "bash --rcfile -c",
        "bash --init-file config",
        "bash -o noclobber",
        "bash -o -c",
        "bash +c testbed",
        "bash script.sh -c testbed",
        "bash -e script.sh -c",
        "bash -- -c",
        "bash -",
        "zsh --no-rcs",
    ],
)
def test_an_interactive_or_login_shell_or_one_that_reads_a_script_is_not_a_launcher(shell):
    assert launchers(chain(shell)) == []


def test_a_shell_without_readable_arguments_is_not_a_launcher():
    assert launchers([(101, "bash", []), (102, "make", ["make"])]) == []


def test_the_chain_ends_at_the_first_ancestor_that_is_no_launcher():
    assert launchers(chain("make experiment", "bash -i", "sudo bash", "sh -c terminal")) == [101]
    assert launchers(chain("sshd: user", "sh -c testbed")) == []


def test_a_program_whose_arguments_look_like_a_shells_is_not_a_launcher():
    assert launchers(chain("python -c pass")) == []


def test_the_first_ancestor_is_the_parent_and_the_last_has_none():
    found = ancestors(os.getpid())
    assert found[0][0] == os.getppid()
    assert len({pid for pid, _, _ in found}) == len(found)


def test_this_process_runs():
    assert is_running(this_process())


@pytest.mark.parametrize("change", [{"pid": 2**22 + 1}, {"started": 1}, {"boot": "another"}])
def test_another_number_start_or_boot_is_another_process(change):
    assert not is_running({**this_process(), **change})


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_a_process_that_was_killed_does_not_run(child):
    identity = {**this_process(), "pid": child.pid, "started": _started(child.pid)}
    assert is_running(identity)
    child.kill()
    child.wait()
    assert not is_running(identity)


def test_a_killed_process_that_nobody_has_waited_for_does_not_run(child):
    identity = {**this_process(), "pid": child.pid, "started": _started(child.pid)}
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(identity)


def test_an_identity_without_a_start_is_no_running_process():
    assert not is_running({"pid": 2**22 + 1, "boot": this_process()["boot"]})


def test_nothing_written_down_is_no_running_process():
    assert not is_running({})
    assert not may_run({})


def test_of_a_process_in_another_pid_namespace_nobody_here_can_say_that_it_ended():
    assert this_process()["pid_namespace"] == os.stat("/proc/self/ns/pid").st_ino
    elsewhere = {**this_process(), "pid_namespace": 1}
    assert not is_running(elsewhere)
    assert may_run(elsewhere)
    assert not may_run({**elsewhere, "boot": "another"})


def test_a_process_that_was_written_down_without_its_namespace_is_of_this_one():
    assert is_running({key: value for key, value in this_process().items() if key != "pid_namespace"})
