"""Judging a run beside background traffic: what can be judged still is, and what cannot is said."""

from __future__ import annotations

import pandas as pd
import pytest
from test_emulation_validity import Finished, sampled

from testbed.emulation.validity import Evidence, Window, checks

WIRE_BYTES = 1_547_000  # of 1000 full segments and 500 acknowledgements


def stepped(foreign_bytes=(0, 0), start_s=10.0):
    """Ten steps of a second for each of two workers, in which both send and receive as much; some interfaces carry foreign bytes too."""
    rows = []
    for rank, foreign in enumerate(foreign_bytes):
        for step in range(10):
            counted = WIRE_BYTES + (foreign if 2 <= step < 4 else 0)
            row = {"bytes_sent": 1_448_000, "bytes_received": 1_448_000, "wire_bytes_sent": counted}
            rows.append({"rank": rank, "step": step, "mono_s": start_s + step, "step_s": 1.0, **row})
    return pd.DataFrame(rows)


def traffic(source="h1", target="t1", start_s=12.2, seconds=1.0, **counts):
    """Rows of one entry, from 12.2 s to 13.2 s: within the third and the fourth step."""
    row = {"entry": 0, "source": source, "target": target, "seconds": 0.5, "retransmits": None, "lost_packets": None, **counts}
    rows = [{**row, "mono_s": start_s + 0.5 * i} for i in range(int(seconds * 2))]
    return pd.DataFrame(rows).astype({"retransmits": "Int64", "lost_packets": "Int64"})


class Beside(Finished):
    """A run beside which there was other traffic."""

    def __init__(self):
        super().__init__()
        self.steps, self.background, self.events = stepped(), pd.DataFrame(), pd.DataFrame()

    def checks(self, measured=True):
        windows = Window(self.first, self.last), Window(self.before, self.after)
        seen = (self.network, 1500, self.steps, self.links, self.links, self.workers, self.fidelity, 10.0, 20.0, *windows)
        return {check.name: check for check in checks(Evidence(*seen, self.background, self.events))}


@pytest.fixture
def run():
    return Beside()


def test_bytes_of_background_traffic_on_a_workers_host_do_not_spoil_the_run(run):
    run.steps = stepped(foreign_bytes=(5_000_000, 0))
    assert list(run.failed()) == ["bytes on the wire"]
    run.background = traffic("h1", "t1")
    assert run.failed() == {}
    found = run.checks()["bytes on the wire"]
    assert found.value == pytest.approx(1.0, rel=0.01)
    assert found.text.endswith("10% of the steps were not judged, as background traffic was on their hosts")


def test_a_receiving_host_is_not_judged_either(run):
    run.steps = stepped(foreign_bytes=(0, 5_000_000))
    run.background = traffic("t1", "h2")
    assert run.failed() == {}


def test_the_other_hosts_and_the_other_steps_are_still_judged(run):
    run.steps = stepped(foreign_bytes=(0, 5_000_000))
    run.background = traffic("h1", "t1")  # which does not excuse h2
    assert list(run.failed()) == ["bytes on the wire"]
    run.steps = stepped(foreign_bytes=(5_000_000, 0))
    run.background = traffic("h1", "t1", start_s=17.0)  # nor at another time
    assert list(run.failed()) == ["bytes on the wire"]
    run.background = traffic("t1", "t2")  # nor between others
    assert list(run.failed()) == ["bytes on the wire"]


def test_where_background_traffic_was_everywhere_throughout_that_is_said(run):
    run.background = traffic("h1", "h2", start_s=9.0, seconds=12)
    found = run.checks()["bytes on the wire"]
    assert (found.value, found.ok) == (None, True)
    assert found.text.startswith("not judged")


def test_of_a_workers_messages_the_judged_steps_have_their_share(run):
    run.background = traffic("h1", "t1", start_s=15.0, seconds=6)  # half of worker 0's steps
    run.workers[0]["messages"] = 1000
    limit = run.checks()["bytes on the wire"].limit
    run.workers[0]["messages"], run.workers[1]["messages"] = 0, 500
    assert run.checks()["bytes on the wire"].limit == pytest.approx(limit)


def test_segments_that_background_flows_sent_again_do_not_excuse_the_workers_bytes(run):
    run.after["tcp"]["RetransSegs"] += 5000
    assert run.checks()["bytes on the wire"].limit > 1.3
    run.background = traffic("t1", "t2", retransmits=2500)
    assert run.checks()["bytes on the wire"].limit == pytest.approx(1.08)


def test_datagrams_that_were_lost_explain_no_retransmission(run):
    run.links = sampled(dropped=1000)
    run.last["tcp"]["RetransSegs"] += 400
    assert run.failed() == {}
    run.background = traffic("t1", "t2", lost_packets=500)
    assert list(run.failed()) == ["retransmissions"]
    run.background = traffic("t1", "t2", lost_packets=250)
    assert run.failed() == {}
    run.background = traffic("t1", "t2", start_s=2.0, lost_packets=500)  # before the measured part
    assert run.failed() == {}


def test_drops_on_an_uplink_and_losses_in_the_switches_explain_retransmissions_together(run):
    uplink = pd.DataFrame({"link": "access-h1", "source": "h1", "mono_s": [10.0, 20.0], "dropped_packets": [0, 30]})
    run.links = pd.concat([sampled(dropped=1), uplink])
    run.last["switch_lost"] += 30
    run.after["switch_lost"] += 30
    run.last["tcp"]["RetransSegs"] += 60
    assert run.failed() == {}


def test_drops_on_an_uplink_excuse_no_loss_in_the_switches(run):
    uplink = pd.DataFrame({"link": "access-h1", "source": "h1", "mono_s": [10.0, 20.0], "dropped_packets": [0, 30]})
    run.links = pd.concat([sampled(), uplink])
    run.after["switch_lost"] += 30
    assert list(run.failed()) == ["switch losses"]


def event(kind, late_s=0.0, text=""):
    return {"mono_s": 12.0, "kind": kind, "text": text, "data": {"late_s": late_s}}


def test_flows_must_begin_and_end_in_time(run):
    run.events = pd.DataFrame([event("background_start", 0.01), event("background_end", 0.4), {"kind": "booted", "data": None}])
    assert run.failed() == {}
    assert run.checks()["background"].value == 0.4
    run.events = pd.DataFrame([event("background_start", 0.01), event("background_end", 0.6)])
    assert run.failed() == {"background": "background traffic began or ended 0.6 s late"}


def test_a_flow_that_broke_off_makes_the_run_invalid(run):
    run.events = pd.DataFrame([event("background_start"), event("background_failed", text="1 TCP flow from t1 to t2 broke off: error")])
    assert run.failed() == {"background": "1 TCP flow from t1 to t2 broke off: error"}


def test_a_run_without_background_traffic_is_not_asked_about_it(run):
    run.events = pd.DataFrame([{"mono_s": 12.0, "kind": "booted", "text": "", "data": None}])
    assert "background" not in run.checks()
