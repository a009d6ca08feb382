"""Background traffic on a real network: it comes and goes at its times, and what is recorded of it is what the queues saw."""

from itertools import pairwise

import pytest

from tests.emulation.scenarios import play

pytestmark = pytest.mark.usefixtures("emulation")

UDP_BPS, BOTTLENECK_BPS = 3e6, 10e6
FRAME_BYTES, DATAGRAM_BYTES, SEGMENT_BYTES = 1514, 1472, 1448
SCHEDULE = [
    {"start_s": 0.5, "stop_s": 3.0, "source": "t1", "target": "t2", "protocol": "udp", "rate_bps": UDP_BPS},
    {"start_s": 3.5, "stop_s": 5.5, "source": "t1", "target": "t2", "flows": 1},  # a pattern of 1 and 2 flows with a pause,
    {"start_s": 6.5, "stop_s": 9.0, "source": "t1", "target": "t2", "flows": 2},
    {"start_s": 6.5, "stop_s": 9.0, "source": "t3", "target": "t4", "flows": 1},  # and a rival
]
BUSY = [(0.5, 3.0), (3.5, 5.5), (6.5, 9.0)]


@pytest.fixture(scope="module")
def seen(emulation):
    return play("scheduled", room="competing", flows=SCHEDULE, seconds=9.6)


def rows_of(seen, entry):
    return [row for row in seen["rows"] if row["entry"] == entry]


def goodput_bps(seen, entry, skip_s=0.0):
    """Return what an entry received over its time, less the first moments if asked."""
    start_s, stop_s = SCHEDULE[entry]["start_s"] + skip_s, SCHEDULE[entry]["stop_s"]
    return sum(row["received_bytes"] for row in rows_of(seen, entry) if row["t_s"] >= start_s - 0.01) * 8 / (stop_s - start_s)


def bottleneck_bytes(seen, start_s, end_s):
    sent = [sent_bytes for at_s, sent_bytes, _ in seen["trace"] if start_s <= at_s <= end_s]
    return sent[-1] - sent[0]


def bursts(seen):
    """Return when the bottleneck was busy: the first and the last moment of each stretch without a pause of 0.2 s."""
    found = []
    for (_, before, _), (at_s, after, _) in pairwise(seen["trace"]):
        if after - before < FRAME_BYTES:
            continue
        if not found or at_s - found[-1][1] > 0.2:
            found.append([at_s, at_s])
        found[-1][1] = at_s
    return found


def test_flows_begin_and_end_at_their_times_and_the_true_times_are_told(seen):
    told = {kind: [event for event in seen["events"] if event["kind"] == kind] for kind in ("background_start", "background_end")}
    for kind, moment in (("background_start", "start_s"), ("background_end", "stop_s")):
        assert sorted(event["entry"] for event in told[kind]) == [0, 1, 2, 3]
        for event in told[kind]:
            assert 0 <= event["late_s"] < 0.3
            assert event["t_s"] == pytest.approx(SCHEDULE[event["entry"]][moment] + event["late_s"], abs=0.02)
    assert len(bursts(seen)) == len(BUSY)
    for (first_s, last_s), (start_s, stop_s) in zip(bursts(seen), BUSY, strict=True):
        assert 0 <= first_s - start_s < 0.3
        assert abs(last_s - stop_s) < 0.3  # what was in the queue leaves a moment later


def test_what_a_udp_flow_delivers_is_recorded_and_is_what_the_bottleneck_counted(seen):
    rows = rows_of(seen, 0)
    datagrams = sum(row["received_bytes"] for row in rows) / DATAGRAM_BYTES
    assert goodput_bps(seen, 0) == pytest.approx(UDP_BPS, rel=0.05)
    assert datagrams * FRAME_BYTES * 8 / 2.5 == pytest.approx(UDP_BPS, rel=0.02)
    assert bottleneck_bytes(seen, 0.3, 3.3) == pytest.approx(datagrams * FRAME_BYTES, rel=0.01)
    assert sum(row["lost_packets"] for row in rows) == 0
    assert all(row["retransmits"] is None for row in rows)


def test_what_tcp_flows_deliver_is_recorded_and_is_what_the_bottleneck_carried(seen):
    for entries, (start_s, stop_s) in (([1], BUSY[1]), ([2, 3], BUSY[2])):
        received = sum(row["received_bytes"] for entry in entries for row in rows_of(seen, entry))
        resent = sum(row["retransmits"] for entry in entries for row in rows_of(seen, entry))
        carried = bottleneck_bytes(seen, start_s - 0.2, stop_s + 0.4)
        frames = received / SEGMENT_BYTES
        assert carried >= frames * FRAME_BYTES
        assert carried <= 1.03 * (frames + resent) * FRAME_BYTES  # what had left and was not received in order when all was stopped


def test_tcp_flows_between_other_hosts_share_the_bottleneck_and_the_workers_hosts_are_untouched(seen):
    most_bps = BOTTLENECK_BPS * SEGMENT_BYTES / FRAME_BYTES
    shares = [goodput_bps(seen, entry, skip_s=0.5) / most_bps for entry in (2, 3)]
    assert 0.93 < sum(shares) < 1.02
    assert min(shares) > 0.1
    assert seen["sent_bytes"]["h1"] == seen["sent_bytes"]["h2"] == 0


def test_rows_leave_no_gap_from_a_flows_start_to_its_end_and_none_in_its_pauses(seen):
    for entry, flow in enumerate(SCHEDULE):
        rows = rows_of(seen, entry)
        assert rows[0]["t_s"] == pytest.approx(flow["start_s"], abs=0.3)
        for row, after in pairwise(rows):
            assert after["t_s"] == pytest.approx(row["t_s"] + row["seconds"], abs=1e-6)
        assert flow["stop_s"] <= rows[-1]["t_s"] + rows[-1]["seconds"] + 1e-6 < flow["stop_s"] + 0.8
        assert {(row["source"], row["target"], row["flows"]) for row in rows} == {(flow["source"], flow["target"], flow.get("flows", 1))}


def test_no_call_holds_the_loop_up_and_nothing_is_left(seen):
    assert seen["longest_act_s"] < 0.02
    assert seen["cpu_s"] > 0  # processes that have ended still count
    assert seen["is_idle"]


def test_a_flow_whose_client_dies_is_told_and_recorded_as_nothing_to_its_end():
    ends = {"start_s": 0.0, "stop_s": 2.0, "source": "t1", "target": "t2"}
    seen = play("broken", room="competing", flows=[ends, {**ends, "protocol": "udp", "rate_bps": UDP_BPS}], kill_s=0.7, seconds=2.4)
    for entry in (0, 1):
        assert [kind for kind, of, _ in seen["events"] if of == entry] == ["background_start", "background_failed", "background_end"]
        rows = rows_of(seen, entry)
        assert rows[0]["received_bytes"] > 0
        assert all(row["received_bytes"] == 0 for row in rows if row["t_s"] >= 1.2)
        assert rows[-1]["t_s"] + rows[-1]["seconds"] == pytest.approx(2.0, abs=0.3)
