"""Validity: a faithful run passes every check, and each way of being unfaithful fails one of them in words."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from testbed.emulation import validity
from testbed.emulation.fidelity import Fidelity
from testbed.emulation.validity import Evidence, Window, checks, lateness_p99_s, queue_fidelity, window
from topologies import LinkSpec, QueueClass, dumbbell

FORWARD = "bottleneck:s1->s2"
NETWORK = dumbbell(2, LinkSpec(8e6, 0.005), LinkSpec(100e6), bottleneck_back=LinkSpec(8e6, 0.040))
BACKWARD = "bottleneck:s2->s1"
FAITHFUL = Fidelity(0.995, 0.5, 0.99)
ROLES = ("vswitchd", "delayline", "sampler", "workers", "runner")


def snapshot(mono_s: float) -> dict:
    counters = {"frames": 0, "bytes": 0, "lost": 0, "send_errors": 0, "held": 0, "lateness": {}}
    return {
        "mono_s": mono_s,
        "cpu_s": dict.fromkeys(ROLES, 0.0),
        "waited_s": dict.fromkeys(ROLES, 3.0),
        "machine_busy_s": 0.0,
        "machine_steal_s": 0.0,
        "softnet_drops": 7,
        "socket_drops": 2,
        "switch_lost": -3,  # frames sent on to several ports come out more often than they went in
        "tcp": {"RetransSegs": 100, "TCPLossProbes": 10, "TCPDSACKRecv": 10, "TCPDSACKOfoRecv": 0, "TCPDSACKRecvSegs": 10},
        "delay": {"socket_drops": 4, "directions": {FORWARD: deepcopy(counters), BACKWARD: deepcopy(counters)}},
    }


def sampled(dropped: int = 0) -> pd.DataFrame:
    """Two samples of both directions of the bottleneck; the forward one drops in between."""
    row = {"sent_bytes": 0, "backlog_bytes": 0, "rate_bps": 8e6, "sent_packets": 0, "link": "bottleneck"}
    return pd.DataFrame(
        [
            {**row, "mono_s": 10.0, "source": "s1", "dropped_packets": 50},
            {**row, "mono_s": 10.0, "source": "s2", "dropped_packets": 8},
            {**row, "mono_s": 20.0, "source": "s1", "dropped_packets": 50 + dropped},
            {**row, "mono_s": 20.0, "source": "s2", "dropped_packets": 8},
        ]
    )


def stepped(wire_bytes: float = 1_547_000) -> pd.DataFrame:
    """Send and receive 1000 full segments: 1000 frames of 1514 bytes out, and 500 acknowledgements of 66."""
    return pd.DataFrame({"bytes_sent": [1_448_000, 0], "bytes_received": [0, 1_448_000], "wire_bytes_sent": [wire_bytes, 0]})


class Finished:
    """A finished run, faithful in every respect until a test spoils it."""

    def __init__(self) -> None:
        self.before, self.first, self.last, self.after = (snapshot(mono_s) for mono_s in (1.0, 10.0, 20.0, 25.0))
        self.network, self.dilation = NETWORK, 1.0
        self.fidelity, self.links, self.steps = FAITHFUL, sampled(), stepped()
        self.workers = [{"parameter_digest": "a", "messages": 0} for _ in range(2)]

    def checks(self, measured: bool = True) -> dict:
        windows = (Window(self.first, self.last) if measured else None), Window(self.before, self.after)
        seen = (self.network, 1500, self.steps, self.links, self.links, self.workers, self.fidelity, 10.0, 20.0, *windows)
        found = checks(replace(Evidence(*seen), dilation=self.dilation))
        assert len({check.name for check in found}) == len(found)
        return {check.name: check for check in found}

    def failed(self) -> dict[str, str]:
        return {name: check.text for name, check in self.checks().items() if not check.ok}

    def line(self, direction: str) -> dict:
        return self.last["delay"]["directions"][direction]


@pytest.fixture
def run():
    return Finished()


def test_a_faithful_run_passes_every_check(run):
    assert run.failed() == {}
    assert set(run.checks()) == {
        "fidelity",
        "sampling",
        "replicas",
        "bytes on the wire",
        "snapshots",
        "vswitchd waiting",
        "delayline waiting",
        "socket drops",
        "softnet drops",
        "delay line drops",
        f"lateness {FORWARD}",
        f"lateness {BACKWARD}",
        "switch losses",
        "retransmissions",
    }


@pytest.mark.parametrize(("value", "ok"), [(None, True), (0.98, True), (0.979, False), (1.05, True)])
def test_the_bottleneck_must_serve_at_its_rate_if_it_was_ever_backlogged(run, value, ok):
    run.fidelity = Fidelity(value, 0.5, value)
    assert run.checks()["fidelity"].ok is ok
    assert ok or f"{value:.3f} of its rate" in run.failed()["fidelity"]


def test_workers_whose_models_differ_are_not_believed(run):
    run.workers[1]["parameter_digest"] = "b"
    assert run.failed() == {"replicas": "the workers' models differ at the end"}


@pytest.mark.parametrize(("ratio", "ok"), [(0.94, False), (0.951, True), (1.0, True), (1.079, True), (1.09, False)])
def test_the_interfaces_must_count_about_the_payload_its_headers_and_the_acknowledgements(run, ratio, ok):
    run.steps = stepped(ratio * 1_547_000)
    found = run.checks()["bytes on the wire"]
    assert found.value == pytest.approx(ratio)
    assert found.ok is ok
    assert ok or f"{ratio:.2f} times the bytes" in found.text


@pytest.mark.parametrize(("messages", "ok"), [(0, False), (99, False), (101, True)])
def test_each_message_may_cost_a_segment_and_an_acknowledgement_more(run, messages, ok):
    run.workers[0]["messages"] = run.workers[1]["messages"] = messages
    run.steps = stepped(1.08 * (1_547_000 + 2 * 100 * 2 * 66))
    assert run.checks()["bytes on the wire"].ok is ok


def test_messages_do_not_excuse_bytes_that_are_missing(run):
    run.workers[0]["messages"] = 10_000
    run.steps = stepped(0.94 * 1_547_000)
    assert list(run.failed()) == ["bytes on the wire"]


def test_a_run_that_sent_nothing_has_no_ratio_of_bytes(run):
    run.workers[0]["messages"] = 1
    run.steps = pd.DataFrame({"bytes_sent": [0], "bytes_received": [0], "wire_bytes_sent": [66]})
    assert run.checks()["bytes on the wire"].value is None
    assert run.failed() == {}


@pytest.mark.parametrize("role", ["vswitchd", "delayline"])
@pytest.mark.parametrize(("waited_s", "ok"), [(0.49, True), (0.51, False)])
def test_the_emulator_may_wait_for_a_cpu_a_twentieth_of_the_time(run, role, waited_s, ok):
    run.last["waited_s"][role] += waited_s
    assert run.checks()[f"{role} waiting"].value == pytest.approx(waited_s / 10)
    assert run.failed() == ({} if ok else {f"{role} waiting": f"{role} waited for a CPU 5.1% of the time"})


def test_workers_may_wait_for_a_cpu(run):
    run.last["waited_s"]["workers"] += 9
    assert run.failed() == {}


@pytest.mark.parametrize(
    ("counter", "name", "words"), [("socket_drops", "socket drops", "dropped 3 frames"), ("softnet_drops", "softnet drops", "3 frames")]
)
def test_not_one_frame_may_be_dropped_outside_of_the_queues(run, counter, name, words):
    run.last[counter] += 3
    assert list(run.failed()) == [name]
    assert words in run.failed()[name]


def test_frames_the_delay_line_could_not_take_or_send_are_added_up(run):
    run.last["delay"]["socket_drops"] += 2
    run.line(FORWARD)["send_errors"] += 1
    run.line(BACKWARD)["send_errors"] += 4
    assert run.failed() == {"delay line drops": "the delay line dropped 7 frames it should have carried"}


@pytest.mark.parametrize(
    ("direction", "bucket", "ok"),
    [(FORWARD, 98, True), (FORWARD, 99, False), (BACKWARD, 198, True), (BACKWARD, 199, False)],  # 1 ms; 5 % of 40 ms
)
def test_lateness_is_limited_to_a_millisecond_or_a_twentieth_of_the_delay(run, direction, bucket, ok):
    run.line(direction)["lateness"] = {str(bucket): 100}
    found = run.checks()[f"lateness {direction}"]
    assert found.value == pytest.approx((bucket + 1) * 10e-6)
    assert found.ok is ok
    assert ok or f"frames of {direction} over {(bucket + 1) / 100:.2f} ms late" in found.text


@pytest.mark.parametrize(
    ("dilation", "bucket", "ok"),
    [(5.0, 498, True), (5.0, 499, False), (100.0, 1998, True), (100.0, 2000, False)],  # 5 ms of the machine's; beyond 20 ms nobody knows
)
def test_lateness_is_limited_in_the_experiments_time(run, dilation, bucket, ok):
    run.dilation = dilation
    run.line(FORWARD)["lateness"] = {str(bucket): 100}
    assert run.checks()[f"lateness {FORWARD}"].ok is ok


def test_a_run_without_a_delay_element_is_not_asked_about_it(run):
    run.first["delay"] = run.last["delay"] = None
    assert run.failed() == {}
    assert not any(name.startswith(("lateness", "delay line")) for name in run.checks())


def test_a_measured_part_without_two_snapshots_is_not_believed(run):
    found = run.checks(measured=False)
    assert [name for name, check in found.items() if not check.ok] == ["window"]
    assert "too short" in found["window"].text


@pytest.mark.parametrize(("lost", "ok"), [(0, True), (64, True), (65, False)])
def test_frames_lost_in_the_switches_are_believed_up_to_a_batch_for_each_drop_of_a_queue(run, lost, ok):
    run.links = sampled(dropped=2)
    run.after["switch_lost"] += lost
    assert run.failed() == ({} if ok else {"switch losses": "65 frames were lost in the switches, 2 by full queues"})


def test_without_a_drop_of_a_queue_not_one_frame_may_be_lost_in_the_switches(run):
    run.after["switch_lost"] += 1
    assert list(run.failed()) == ["switch losses"]


def test_frames_lost_in_the_switches_explain_retransmissions(run):
    run.last["tcp"]["RetransSegs"] += 40
    run.links = sampled(dropped=2)
    assert "retransmissions" in run.failed()
    run.last["switch_lost"] += 38
    run.after["switch_lost"] += 38
    assert run.failed() == {}


def test_retransmissions_beyond_five_that_nothing_explains_are_not_believed(run):
    run.last["tcp"]["RetransSegs"] += 5
    assert run.failed() == {}
    run.last["tcp"]["RetransSegs"] += 1
    assert run.failed() == {"retransmissions": "6 of 6 TCP retransmissions are explained by no counted drop"}


def test_of_many_retransmissions_a_fiftieth_may_be_unexplained(run):
    run.last["tcp"]["RetransSegs"] += 1000
    run.links = sampled(dropped=980)
    assert run.failed() == {}
    run.links = sampled(dropped=979)
    assert run.failed() == {"retransmissions": "21 of 1000 TCP retransmissions are explained by no counted drop"}


@pytest.mark.parametrize("counter", ["TCPLossProbes", "TCPDSACKRecv", "TCPDSACKOfoRecv", "TCPDSACKRecvSegs"])
def test_probes_and_spurious_retransmissions_explain_themselves(run, counter):
    run.last["tcp"]["RetransSegs"] += 40
    assert "retransmissions" in run.failed()
    run.last["tcp"][counter] += 40
    assert run.failed() == {}


def test_a_probe_that_the_receiver_had_already_explains_one_retransmission_not_two(run):
    run.last["tcp"]["RetransSegs"] += 40
    for counter in ("TCPLossProbes", "TCPDSACKRecv"):
        run.last["tcp"][counter] += 20
    assert "retransmissions" in run.failed()


@pytest.mark.parametrize(("kept", "ok"), [(1.0, True), (0.95, True), (0.8, False)])
def test_a_recorder_that_was_starved_makes_the_run_invalid(run, monkeypatch, kept, ok):
    monkeypatch.setattr(validity, "intervals_s", lambda network: dict.fromkeys((FORWARD, BACKWARD), 0.005))
    moments = np.arange(10.0, 20.0, 0.005)
    moments = moments[np.linspace(0, len(moments) - 1, int(kept * len(moments))).astype(int)]
    rows = {"sent_bytes": 0, "backlog_bytes": 0, "rate_bps": 8e6, "sent_packets": 0, "link": "bottleneck", "dropped_packets": 0}
    run.links = pd.concat([pd.DataFrame({**rows, "mono_s": moments, "source": source}) for source in ("s1", "s2")])
    run.network = NETWORK.with_queues_fixed(1500)
    assert run.checks()["sampling"].ok is ok


def test_a_recorder_that_died_makes_the_run_invalid(run, monkeypatch):
    monkeypatch.setattr(validity, "intervals_s", lambda network: dict.fromkeys((FORWARD, BACKWARD), 0.005))
    rows = {"sent_bytes": 0, "backlog_bytes": 0, "rate_bps": 8e6, "sent_packets": 0, "link": "bottleneck", "dropped_packets": 0}
    early = np.arange(10.0, 12.0, 0.005)
    run.links = pd.concat([pd.DataFrame({**rows, "mono_s": early, "source": source}) for source in ("s1", "s2")])
    run.network = NETWORK.with_queues_fixed(1500)
    assert run.checks()["sampling"].value == pytest.approx(0.2)
    assert not run.checks()["sampling"].ok


@pytest.mark.parametrize("end", ["first", "last"])
def test_counters_that_were_not_read_at_either_end_make_the_run_invalid(run, end):
    assert run.checks()["snapshots"].ok
    snapshot = getattr(run, end)
    snapshot["mono_s"] += 3.0 if end == "first" else -3.0
    assert "snapshots" in run.failed()


def test_loss_asked_for_explains_retransmissions(run):
    run.last["tcp"]["RetransSegs"] += 40
    run.line(FORWARD)["lost"] += 30
    run.line(BACKWARD)["lost"] += 10
    assert run.failed() == {}


def test_drops_before_the_measured_part_explain_nothing(run):
    run.last["tcp"]["RetransSegs"] += 40
    run.links["dropped_packets"] += 1000
    assert "retransmissions" in run.failed()


def test_more_drops_than_retransmissions_leave_nothing_unexplained(run):
    run.links = sampled(dropped=30)
    assert run.checks()["retransmissions"].value == 0


def test_a_check_is_plain_data_in_the_manifest(run):
    assert run.checks()["replicas"].to_json() == {
        "name": "replicas",
        "value": 1.0,
        "limit": 1.0,
        "ok": True,
        "text": "the workers' models differ at the end",
    }


def test_the_window_is_the_widest_pair_of_snapshots_within_the_measured_part():
    snapshots = [snapshot(t) for t in (1.0, 2.0, 3.0, 4.0, 5.0)]
    found = window(snapshots, 2.0, 4.5)
    assert (found.first["mono_s"], found.last["mono_s"], found.seconds) == (2.0, 4.0, 2.0)


@pytest.mark.parametrize(("start_s", "end_s"), [(2.5, 4.5 - 1), (6.0, 9.0)])
def test_a_measured_part_with_fewer_than_two_snapshots_has_no_window(start_s, end_s):
    assert window([snapshot(t) for t in (1.0, 2.0, 3.0, 4.0, 5.0)], start_s, end_s) is None


def late(first: dict[str, int], last: dict[str, int]) -> Window:
    pair = snapshot(0.0), snapshot(1.0)
    for one, histogram in zip(pair, (first, last), strict=True):
        one["delay"]["directions"][FORWARD]["lateness"] = histogram
    return Window(*pair)


@pytest.mark.parametrize(
    ("first", "last", "bucket"),
    [
        ({}, {"0": 99, "500": 1}, 0),
        ({}, {"0": 98, "500": 2}, 500),
        ({}, {"2": 50, "10": 49, "9": 1}, 10),  # buckets are numbers, not words
        ({"500": 1000}, {"0": 1, "500": 1000}, 0),  # what came before the window does not count
    ],
)
def test_the_99th_percentile_of_lateness_is_the_upper_edge_of_its_bucket(first, last, bucket):
    assert lateness_p99_s(late(first, last), FORWARD) == pytest.approx((bucket + 1) * 10e-6)


def test_a_direction_that_carried_nothing_in_the_window_has_no_lateness():
    assert lateness_p99_s(late({"3": 5}, {"3": 5}), FORWARD) is None


@pytest.mark.parametrize("time", ["mono_s", "t_s"])
def test_fidelity_is_judged_on_the_bottlenecks_only_and_each_direction_apart(time):
    moments = np.arange(0, 1.0, 1 / 128)
    tables = []
    for link, source, share in (("bottleneck", "s1", 1.0), ("bottleneck", "s2", 0.5), ("access-h1", "h1", 0.0)):
        sent = share * 8e6 / 8 * moments
        row = {"link": link, "source": source, "backlog_bytes": 10**6, "rate_bps": 8e6, "sent_packets": 0}
        tables.append(pd.DataFrame({time: moments, "sent_bytes": sent, **row}))
    whole, by_direction = queue_fidelity(pd.concat(tables, ignore_index=True), NETWORK)
    assert {name: one.value for name, one in by_direction.items()} == pytest.approx({FORWARD: 1.0, BACKWARD: 0.5})
    assert whole.value == pytest.approx(0.5)  # the good direction does not hide the bad one


def test_a_direction_with_one_sample_is_left_out():
    whole, by_direction = queue_fidelity(sampled().iloc[:3], NETWORK)
    assert set(by_direction) == {FORWARD}
    assert whole.value is None


CLASSES = (QueueClass("training", 6e6, 8e6), QueueClass("background", 1e6, 4e6, port=5201))
SHARED = dumbbell(2, LinkSpec(8e6, classes=CLASSES), LinkSpec(100e6))
MOMENTS = np.arange(0, 1.0, 1 / 128)


def of_class(one: QueueClass, share: float, backlog_bytes: int, moments=MOMENTS, time: str = "mono_s") -> pd.DataFrame:
    """Sample a class that sends this share of the link's 8 Mbit/s."""
    row = {"link": "bottleneck", "source": "s1", "queue": one.name, "rate_bps": one.max_bps, "backlog_bytes": backlog_bytes}
    row["sent_packets"] = 0
    return pd.DataFrame({**row, time: moments, "sent_bytes": share * 1e6 * moments})


@pytest.mark.parametrize("time", ["mono_s", "t_s"])
@pytest.mark.parametrize(
    ("training", "background", "value"),
    [
        ((0.75, 10**6), (0.25, 0), 1.0),
        ((0.75, 10**6), (0.25, 10**6), 1.0),
        ((0.25, 10**6), (0.25, 0), 0.5),  # the class that may fill the link waits, and the link is half empty
        ((0.25, 0), (0.5, 10**6), 1.0),  # only a class that may not: the link need not be full, but the class must have its most
        ((0.25, 0), (0.25, 10**6), 0.5),
        ((0.75, 0), (0.25, 10**6), None),  # the other leaves it no more
        ((0.25, 0), (0.75, 0), None),
    ],
)
def test_a_link_must_be_full_while_a_class_that_may_fill_it_has_a_backlog(training, background, value, time):
    tables = [of_class(one, *sent, time=time) for one, sent in zip(CLASSES, (training, background), strict=True)]
    whole, by_direction = queue_fidelity(pd.concat(tables), SHARED)
    assert set(by_direction) == {FORWARD}  # there are no samples of the other
    assert by_direction[FORWARD].value == whole.value == (value if value is None else pytest.approx(value))


def test_classes_that_were_sampled_at_different_moments_are_judged_together_too():
    tables = [of_class(CLASSES[0], 0.75, 10**6), of_class(CLASSES[1], 0.25, 0, moments=MOMENTS[::2] + 1 / 300)]
    assert queue_fidelity(pd.concat(tables), SHARED)[0].value == pytest.approx(1.0, abs=0.02)


def test_drops_are_counted_for_each_class_by_itself(run):
    training, background = sampled(dropped=2), sampled(dropped=3)
    background["dropped_packets"] += 1000
    run.links = pd.concat([training.assign(queue="training"), background.assign(queue="background")])
    assert run.checks()["switch losses"].limit == 32 * (2 + 3)


@pytest.mark.parametrize(("queues", "share"), [(("training", "background"), 1.0), (("training",), 0.5)])
def test_each_class_must_be_sampled_as_often_as_planned(run, monkeypatch, queues, share):
    monkeypatch.setattr(validity, "intervals_s", lambda network: dict.fromkeys((FORWARD, BACKWARD), 0.005))
    moments = np.arange(10.0, 20.0, 0.005)
    tables = [of_class(one, 0.1, 0, moments).assign(dropped_packets=0) for one in CLASSES if one.name in queues]
    run.links = pd.concat([*tables, *(table.assign(source="s2") for table in tables)])
    run.network = SHARED.with_queues_fixed(1500)
    assert run.checks()["sampling"].value == pytest.approx(share, rel=0.01)
