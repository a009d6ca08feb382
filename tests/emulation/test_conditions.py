"""Each condition has its effect on what crosses a real network: measured by datagrams and pings, never by reading tc back."""

import statistics
import subprocess

import pandas as pd
import pytest

from tests.emulation.experiments import ROOT, command, manifest
from tests.emulation.scenarios import play
from tests.measuring import measured

pytestmark = [pytest.mark.usefixtures("emulation"), measured]

ROOM = "conditioned"


@pytest.mark.parametrize("link", ["bottleneck", "access-h1"])
def test_a_new_rate_holds_after_50_ms_at_a_switch_and_at_a_host(link):
    seen = play("rate_steps", room=ROOM, link=link, rates_bps=[10e6, 30e6, 5e6, 20e6], offered_bps=40e6, queue_bytes=300_000)
    assert seen["mbit"] == pytest.approx([10, 30, 5, 20], rel=0.03)
    assert max(seen["late_s"]) < 0.05


def test_a_change_of_rate_loses_nothing_that_fits_and_keeps_the_order():
    rates = [20e6, 8e6, 30e6, 8e6, 20e6]
    seen = play("rate_steps", room=ROOM, link="bottleneck", rates_bps=rates, offered_bps=9e6, queue_bytes=2_000_000)
    assert seen["received"] == seen["sent"] > 3000
    assert seen["numbers_in_order"]


def test_no_limit_and_nothing():
    seen = play("rate_steps", room=ROOM, link="bottleneck", rates_bps=[5e6, "unlimited", 0.0], offered_bps=40e6, queue_bytes=30_000)
    assert seen["mbit"][:2] == pytest.approx([5, 40], rel=0.03)
    assert seen["mbit"][2] < 0.3  # a frame in a tenth of a second


def test_delay_jitter_and_loss_change_in_place():
    seen = play("delay_steps", room=ROOM)
    median_ms = {name: statistics.median(values) * 1e3 for name, values in seen.items() if isinstance(values, list)}
    assert median_ms["at_first_s"] == pytest.approx(8, abs=0.7)  # 2 ms at both ends, there and back
    assert median_ms["later_s"] == pytest.approx(48, abs=2.4)
    assert median_ms["one_way_s"] == pytest.approx(33, abs=1.7)
    assert median_ms["jitter_s"] == pytest.approx(48, abs=6)
    assert max(seen["jitter_s"]) - min(seen["jitter_s"]) > 0.015
    assert max(seen["later_s"]) - min(seen["later_s"]) < 0.010
    assert 400 * 0.8 * 0.85 < seen["lossy"] < 400 * 0.8 * 1.15
    assert median_ms["again_s"] == pytest.approx(8, abs=0.7)
    assert len(seen["again_s"]) == 30


@pytest.mark.parametrize("link", ["bottleneck", "access-h2"])
def test_a_link_goes_down_and_comes_back_with_its_rate(link):
    seen = play("down_and_up", room=ROOM, link=link)
    answered = seen["answered"]
    assert answered[0] == answered[-1] == 10
    assert answered.count(0) >= 3
    assert seen["mbit_after"] == pytest.approx(10, rel=0.03)


@pytest.mark.parametrize(("most_mbit", "pauses"), [(100.0, False), (12.0, True)])
def test_a_mahimahi_trace_is_followed_within_5_percent_of_any_second_up_to_100_mbit(most_mbit, pauses):
    seen = play("followed_trace", room=ROOM, seconds=6, most_mbit=most_mbit, seed=1, pauses=pauses)
    assert seen["worst"] < 0.05
    assert seen["changes"] > 20
    assert seen["late_s"] < 0.05


CHANGING = """
name: changing
topology: {kind: dumbbell, workers: 4, bottleneck: {rate: 20mbit, delay: 2ms}, access: {rate: 100mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {steps: 32}, warmup_steps: 3}
schemes: [topk-0.1]
conditions:
- {at_step: 12, link: bottleneck, rate: 2mbit}
- {at_step: 20, link: bottleneck, rate: 20mbit}
- {at: 1s, link: access-h1, delay: 20ms, direction: forward}
"""


def test_a_run_goes_through_its_conditions_and_tells_when_each_took_effect(tmp_path):
    experiment = tmp_path / "changing.yaml"
    experiment.write_text(CHANGING)
    done = subprocess.run(command(experiment), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = tmp_path / "results" / "changing"
    assert manifest(folder, "topk-0.1")["valid"]
    events = pd.read_parquet(folder / "topk-0.1" / "events.parquet").query("kind == 'link_changed'")
    steps = pd.read_parquet(folder / "topk-0.1" / "steps.parquet").query("rank == 0").set_index("step")
    assert list(events["text"]) == ["access-h1 (forward): delay 20ms", "bottleneck: rate 2mbit", "bottleneck: rate 20mbit"]
    for step, at_s in ((12, events["t_s"].iloc[1]), (20, events["t_s"].iloc[2])):
        assert steps["t_s"][step] <= at_s < steps["t_s"][step] + 0.05
    assert events["t_s"].iloc[0] == pytest.approx(1.0, abs=0.05)
    fast, slow, again = (steps["step_s"].loc[a:b].median() for a, b in ((5, 11), (13, 19), (22, 31)))
    assert slow > 2 * fast
    assert again < slow / 2
    links = pd.read_parquet(folder / "topk-0.1" / "links.parquet").query("link == 'bottleneck'")
    assert set(links["rate_bps"]) == {20e6, 2e6}
