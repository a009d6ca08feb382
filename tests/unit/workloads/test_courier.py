"""A process may end as soon as all promises are kept; one that still waits for its peers ends at once, and says that it failed."""

import subprocess
import sys

from tests.unit.workloads.preloaded import ROOT

SCRIPT = """
import threading, time
from workloads.exchange.courier import Courier

class Errand:
    def __init__(self): self.kept = threading.Event()
    def wait(self): {wait}
    def finish(self): self.kept.set(); time.sleep(0.3); print("finished", flush=True)
    def fail(self, error): raise error

courier, errand = Courier(), Errand()
courier.submit(errand)
{then}
"""


def end_of(wait: str, then: str) -> subprocess.CompletedProcess[str]:
    script = SCRIPT.format(wait=wait, then=then)
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_what_has_arrived_is_finished_before_the_process_ends():
    ended = end_of("pass", "errand.kept.wait()")
    assert (ended.returncode, ended.stdout) == (0, "finished\n"), ended.stderr


def test_a_process_that_still_waits_ends_at_once_with_a_code():
    ended = end_of("time.sleep(60)", "time.sleep(0.1)")
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_process_in_which_a_transfer_failed_ends_at_once_with_a_code():
    ended = end_of("pass", "errand.kept.wait(); courier.failure = OSError('hung up')")
    assert (ended.returncode, ended.stdout) == (1, "")
