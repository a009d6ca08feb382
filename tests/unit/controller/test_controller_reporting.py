"""A fault anywhere ends the process, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

IN_A_THREAD = """
from os_ken.lib import hub
from controller.reporting import guarded

@guarded
def body():
    raise ValueError("no such thing")

hub.spawn(body)
import time
time.sleep(60)
"""

LOGGED_ONLY = """
import logging
from controller.reporting import start_logging
start_logging()
logging.getLogger("os_ken.lib.hub").warning("a warning")
logging.getLogger("os_ken.lib.hub").error("uncaught %s", "thing")
import time
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("program", "text", "logged"),
    [(IN_A_THREAD, "ValueError: no such thing", "Traceback"), (LOGGED_ONLY, "_LoggedError: uncaught thing", "a warning")],
)
def test_a_fault_is_logged_and_reported_and_ends_the_process(program, text, logged):
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"event": "error", "text": text}]
    assert logged in done.stderr


def test_a_fault_that_nobody_hears_ends_the_process_all_the_same():
    program = f"import os\nos.close(1)\n{IN_A_THREAD}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "no such thing" in done.stderr
