"""A run's plan crosses a pipe as JSON and arrives as it was."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.plan import RunPlan
from topologies import LinkSpec, dumbbell, leafspine, star

numbers = st.floats(0, 1e12, allow_nan=False)
specs = st.builds(
    LinkSpec,
    rate_bps=st.none() | numbers,
    delay_s=numbers,
    jitter_s=numbers,
    loss=st.floats(0, 0.99),
    queue_bytes=st.none() | st.integers(1, 2**40),
    queue_bdp=st.none() | numbers,
)
networks = st.one_of(
    st.builds(star, st.integers(2, 5), specs, specs),
    st.builds(dumbbell, st.integers(2, 5), specs, specs, specs, specs),
    st.builds(leafspine, st.just(4), st.just(2), st.integers(1, 3), specs, specs),
)


@given(networks)
def test_a_plan_read_back_from_its_json_is_the_same_plan(network):
    plan = RunPlan(
        run="topk-0.1_train",
        run_dir="/results/quick/topk-0.1_train",
        network=network,
        mtu=1500,
        transport={"congestion_control": "cubic", "ecn": False},
        kernel_datapath=False,
        seed=3,
        routing={"kind": "ecmp", "seed": 3, "pinned": [["h1", "s1", "h2"]]},
        scheme={"scheme": "topk", "ratio": 0.1},
        workload={"kind": "replay", "budget": {"seconds": 20.0, "steps": None}},
        slowdowns=[[{"low": 1.0, "high": 3.0, "chance": 1.0}], []],
        cpus=[0.5, None],
    ).dilated(5.0)
    read = RunPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert read == plan
    assert list(read.network.directions()) == list(network.dilated(5.0).directions())
    assert (read.dilation, read.workload["budget"]["seconds"]) == (5.0, 20.0)  # the workers have a clock as slow
