import json
import os

import pytest

from workloads.herald import Herald, open_for_reading


def test_the_first_step_and_those_asked_for_are_told(tmp_path):
    pipe = open_for_reading(tmp_path)
    herald = Herald(tmp_path, steps=[3, 5])
    for step in range(7):
        herald.begins(step)
    told = [json.loads(line) for line in os.read(pipe, 4096).splitlines()]
    assert [one["step"] for one in told] == [0, 3, 5]
    assert told[0]["mono_s"] <= told[1]["mono_s"] <= told[2]["mono_s"]
    with pytest.raises(BlockingIOError):
        os.read(pipe, 4096)
    os.close(pipe)


def test_where_nobody_reads_nothing_is_said(tmp_path):
    Herald(tmp_path, steps=[1]).begins(0)
    os.mkfifo(tmp_path / "herald.pipe")
    Herald(tmp_path, steps=[1]).begins(1)
