"""What is said of a run on real machines: replicas must agree, bytes on the wire are a note."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
from crews import machines

from testbed.cluster.judgement import judge, wire_notes
from testbed.emulation.judgement import Unjudgeable
from testbed.record import RunFolder

PAYLOAD = 1_000_000


def steps(*wire_bytes):
    """Return a step a rank, each sending the payload, and its interface that many bytes."""
    row = {"step": 0, "compute_s": 0.12, "bytes_sent": PAYLOAD, "bytes_received": PAYLOAD}
    return pd.DataFrame([{**row, "rank": rank, "mono_s": 7.0 + rank, "wire_bytes_sent": wire} for rank, wire in enumerate(wire_bytes)])


def workers(*digests):
    return [{"rank": i, "parameter_digest": digest, "quiet_compute_s": 0.1, "messages": 10} for i, digest in enumerate(digests)]


@pytest.mark.parametrize(("wire", "noted"), [(1.0, False), (1.08, False), (1.5, True), (0.5, True)])
def test_an_interface_that_sent_more_or_less_than_the_payload_is_a_note(wire, noted):
    notes = wire_notes(steps(1.05 * PAYLOAD, wire * PAYLOAD), workers("a", "a"), machines(2))
    assert len(notes) == noted
    assert all(note.startswith(f"eth0 of node2 sent {wire:.1f} MB where the payload of rank 1 comes to 1.0 to 1.1") for note in notes)


def test_ranks_that_share_an_interface_are_not_compared_and_that_is_a_note():
    shared = [replace(one, host="node1") for one in machines(2)]
    assert wire_notes(steps(None, None), workers("a", "a"), shared) == [
        "bytes on the wire are not told apart where ranks share an interface"
    ]


@pytest.fixture
def folder(tmp_path):
    """Make the folder of a run that two workers have ended, with these digests."""

    def folder(*digests):
        made = RunFolder(tmp_path / "run", {})
        for rank, row in enumerate(steps(1.05 * PAYLOAD, 1.05 * PAYLOAD).to_dict("records")):
            (made.stream / f"steps-{rank}.jsonl").write_text(json.dumps(row) + "\n")
        for worker in workers(*digests):
            (made.stream / f"worker-{worker['rank']}.json").write_text(json.dumps(worker))
        for at_s, kind in ((6.0, "measured_start"), (9.0, "measured_end")):
            with (made.stream / "events-0.jsonl").open("a") as file:
                file.write(json.dumps({"mono_s": at_s, "kind": kind, "text": "", "data": {}}) + "\n")
        return made

    return folder


def test_replicas_that_agree_make_a_run_valid_and_the_rest_is_not_claimed(folder):
    judged = judge(folder("a", "a"), machines(2))
    assert (judged["valid"], judged["invalid_reasons"], judged["notes"]) == (True, [], [])
    assert [check["name"] for check in judged["checks"]] == ["replicas"]
    assert judged["compute_inflation"] == pytest.approx(1.2)
    assert judged["origin_mono_s"] == 7.0


def test_replicas_that_differ_make_it_invalid(folder):
    judged = judge(folder("a", "b"), machines(2))
    assert (judged["valid"], judged["invalid_reasons"]) == (False, ["the workers' models differ at the end"])


def test_a_rank_without_a_result_makes_it_fail(folder):
    with pytest.raises(Unjudgeable):
        judge(folder("a"), machines(2))
