"""The plan of a sweep, in words and as JSON."""

from __future__ import annotations

import json

from testbed.attempts import standing
from testbed.forecast import Forecast
from testbed.schedule import Schedule
from testbed.spec import from_mapping
from testbed.sweep import expand

EXPERIMENT = from_mapping(
    {
        "name": "grid",
        "topology": {"kind": "dumbbell", "workers": 4, "bottleneck": {"rate": "40mbit"}, "access": {"rate": "100mbit"}},
        "workload": {"kind": "replay", "model": "resnet8", "compute": "60ms", "budget": {"seconds": 18}},
        "schemes": ["none", "fp16"],
        "sweep": {"topology.bottleneck.rate": ["10mbit", "20mbit"], "topology.bottleneck.delay": ["1ms", "5ms", "20ms"]},
        "repeats": 3,
    }
)
FAILED = {"status": "failed", "earlier_attempts": [{}]}
DONE = {"status": "complete", "valid": True}


def schedule(**manifests):
    runs = expand(EXPERIMENT)
    found = {run.slug: standing(manifests.get(f"n{number}")) for number, run in enumerate(runs)}
    return Schedule(EXPERIMENT, "results/grid", runs, found, Forecast())


def test_the_plan_says_what_is_crossed_with_what_how_much_is_done_and_how_long_the_rest_takes():
    assert schedule().sentences() == [
        "grid: 6 cells x 2 schemes x 3 repeats = 36 runs, into results/grid",
        "  topology.bottleneck.rate: 10mbit, 20mbit",
        "  topology.bottleneck.delay: 1ms, 5ms, 20ms",
        "  schemes: none, fp16",
        "0 done, 36 to do",
        "about 18 min; 12 s a run beside its budget, assumed",
    ]


def test_what_is_left_is_named():
    said = schedule(n0=DONE, n1=FAILED).sentences()
    assert said[4] == "1 done, 34 to do, 1 left"
    assert said[5] == "failed twice, and tried again only with --retry: fp16_rate-10mbit_delay-1ms_r1"
    assert said[6].startswith("about 17 min")


def test_a_finished_sweep_has_no_duration():
    done = schedule(**{f"n{number}": DONE for number in range(36)})
    assert done.sentences()[-1] == "36 done, 0 to do"
    assert done.duration.seconds == 0


def test_machines_get_every_run_with_its_state_and_estimate():
    plan = json.loads(json.dumps(schedule(n0=DONE, n1=FAILED).to_json()))
    assert (plan["cells"], plan["schemes"], plan["repeats"], plan["done"], plan["to_do"], plan["left"]) == (6, 2, 3, 1, 34, 1)
    assert (plan["estimated_s"], plan["unknown_runs"]) == (34 * 30.0, 0)
    assert len(plan["runs"]) == 36
    assert plan["runs"][1] == {
        "run": "fp16_rate-10mbit_delay-1ms_r1",
        "scheme": "fp16",
        "cell": {"topology.bottleneck.rate": "10mbit", "topology.bottleneck.delay": "1ms"},
        "repeat": 1,
        "seed": 1,
        "state": "left",
        "estimated_s": 30.0,
    }
