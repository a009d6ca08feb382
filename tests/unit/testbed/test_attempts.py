"""How a run stands: by its own ends only, never by what cut it short."""

from __future__ import annotations

import pytest

from testbed.attempts import history, standing

FAILED = {"status": "failed", "valid": False, "reason": "worker 2 died", "invalid_reasons": ["the run failed"]}
GOOD = {"status": "complete", "valid": True, "reason": None, "invalid_reasons": []}
BAD = {"status": "complete", "valid": False, "reason": None, "invalid_reasons": ["slow"]}
RUNNING = {"status": "running", "valid": False}
CUT = {**FAILED, "reason": "interrupted by the user", "cut_short": True}
ONCE = [{"attempt": 1, "status": "failed", "reason": "worker 2 died", "invalid_reasons": ["the run failed"]}]


def after(manifest, earlier=ONCE):
    return {**manifest, "earlier_attempts": earlier}


@pytest.mark.parametrize(
    ("own", "state", "tries"),
    [
        (None, "due", 2),
        (GOOD, "done", 0),
        (after(GOOD), "done", 0),
        (BAD, "due", 1),  # killed before its second attempt
        (after(BAD), "done", 0),
        (FAILED, "due", 1),
        (after(FAILED), "left", 0),
        (RUNNING, "due", 2),
        (after(RUNNING), "due", 1),
        (CUT, "due", 2),
        (after(CUT), "due", 1),
        (after(CUT, ONCE * 2), "due", 1),  # killed while it was tried again
    ],
)
def test_a_run_has_two_attempts_of_its_own_however_often_it_is_cut_short(own, state, tries):
    stands = standing(own)
    assert (stands.state, stands.tries) == (state, tries)


def test_asked_to_retry_only_what_failed_twice_begins_again():
    assert standing(after(FAILED), retry=True).tries == 2
    assert standing(after(BAD), retry=True).state == "done"
    assert standing(FAILED, retry=True).tries == 1


def test_the_history_has_what_ended_by_itself_and_goes_on_over_commands():
    assert history(FAILED) == tuple(ONCE)
    assert [one["attempt"] for one in history(after(FAILED))] == [1, 2]
    assert history(after(CUT)) == history(after(RUNNING)) == tuple(ONCE)


def test_without_a_manifest_of_its_own_a_run_stands_by_the_attempt_before_but_is_never_done():
    assert standing(None, GOOD).state == "due"
    assert standing(None, FAILED).tries == 1
    assert standing(None, FAILED).history == tuple(ONCE)
