"""Conditions in experiment files: each kind is understood, and everything wrong with them is told at once with its line."""

from __future__ import annotations

import hashlib
import json

import pytest

from testbed.spec import SpecError, from_mapping, load, resolved, unsupported, variants
from testbed.sweep import expand

HEAD = """\
name: small
topology: {kind: dumbbell, workers: 4, bottleneck: {rate: 40mbit, delay: 5ms, jitter: 1ms}, access: {rate: 100mbit}}
workload: {kind: replay, model: resnet8, compute: 60ms, budget: {seconds: 60, steps: 500}}
schemes: [none]
conditions:
"""
GOOD = [
    "{at: 30s, link: bottleneck, rate: 10mbit, delay: 20ms, jitter: 2ms, loss: 1%}",
    "{at_step: 100, link: bottleneck, rate: unlimited, direction: backward}",
    "{at: 20, link: access-h1, state: down}",
    "{from: 10s, until: 30s, every: 500ms, link: access-h1, ramp: {rate: [40mbit, 10mbit], delay: [0s, 5ms], loss: [0, 1%]}}",
    "{from: 10s, every: 1s, link: access-h2, walk: {rate: {between: [5mbit, 40mbit], step: 5mbit}}}",
    "{every: 5s, link: access-h2, redraw: {delay: [5ms, 50ms]}}",
    "{from: 0s, link: access-h3, trace: traces/lte.csv, loop: true}",
    "{link: access-h4, direction: forward, mahimahi: traces/x.up, bin: 200ms}",
    "{at: 20s, for: 60s, background: {from: h1, to: h3, protocol: udp, flows: 4, rate: 5mbit, dscp: 8}}",
    "{at: 0s, background: {from: h1, to: h3, pattern: {flows: [1, 2, 3], each: 15s, pause: 5s}}}",
    "{at: 25, link: access-h1, state: up}",
]


@pytest.fixture
def write(tmp_path):
    """Write an experiment file with these conditions, one a line from line 6 on, and two traces beside it."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "lte.csv").write_text("t,rate,delay\n0,5mbit,5ms\n1,8mbit,7ms\n")
    (tmp_path / "traces" / "x.up").write_text("1\n2\n2\n")

    def write(*conditions: str, head: str = HEAD, tail: str = ""):
        path = tmp_path / "e.yaml"
        path.write_text(head + "".join(f"- {condition}\n" for condition in conditions) + tail)
        return path

    return write


@pytest.fixture
def problems(write):
    """Return the lines of the error, less the folder."""

    def problems(*conditions: str, **parts: str) -> list[str]:
        path = write(*conditions, **parts)
        with pytest.raises(SpecError) as caught:
            load(path)
        return str(caught.value).replace(str(path), "e.yaml").splitlines()

    return problems


def test_every_kind_of_condition_is_understood_and_written_back_as_it_was(write):
    experiment = load(write(*GOOD))
    kinds = [type(condition).__name__ for condition in experiment.conditions]
    assert kinds == ["Step", "Step", "Step", "Ramp", "Walk", "Redraw", "Trace", "Mahimahi", "Background", "Background", "Step"]
    written = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    without_files = [*range(6), -1]  # which are beside the experiment file
    again = from_mapping(written | {"conditions": [written["conditions"][i] for i in without_files]})
    assert again.conditions == tuple(experiment.conditions[i] for i in without_files)
    assert written["conditions"][6] == {"from": "0s", "link": "access-h3", "trace": "traces/lte.csv", "loop": True}
    assert written["conditions"][1]["rate"] == "unlimited"


def test_the_resolved_conditions_are_plain_json_in_si(write, tmp_path):
    conditions = resolved(load(write(*GOOD)))["conditions"]
    assert json.loads(json.dumps(conditions, allow_nan=False)) == conditions
    assert conditions[0] == {
        "link": "bottleneck",
        "direction": "both",
        "at_s": 30.0,
        "rate_bps": 10e6,
        "delay_s": 0.02,
        "jitter_s": 0.002,
        "loss": 0.01,
    }
    assert conditions[1]["rate_bps"] == "unlimited"
    assert conditions[3]["ramp"] == {"rate_bps": [40e6, 10e6], "delay_s": [0.0, 0.005], "loss": [0.0, 0.01]}
    assert conditions[4]["walk"] == {"rate_bps": {"between": [5e6, 40e6], "step": 5e6}}
    digest = hashlib.sha256((tmp_path / "traces" / "lte.csv").read_bytes()).hexdigest()
    assert conditions[6]["trace"] == {"file": "traces/lte.csv", "sha256": digest}
    assert conditions[7]["bin_s"] == 0.2
    assert conditions[9]["background"]["pattern"] == {"flows": [1, 2, 3], "each_s": 15.0, "pause_s": 5.0}


def test_traces_are_beside_the_experiment_file_in_every_cell_of_a_sweep(write, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    experiment = load(write(GOOD[6], tail="sweep: {topology.bottleneck.rate: [10mbit, 40mbit]}\n"))
    assert [len(run.experiment.conditions[0].trace.rows) for run in expand(experiment)] == [2, 2]
    assert experiment.folder == tmp_path


def test_plain_data_finds_its_traces_in_the_working_directory(write, tmp_path, monkeypatch):
    data = load(write(GOOD[6])).model_dump(mode="json", by_alias=True, exclude_unset=True)
    with pytest.raises(SpecError, match=r"conditions\[0\]\.trace: traces/lte\.csv cannot be read: no such file"):
        from_mapping(data)
    monkeypatch.chdir(tmp_path)
    assert from_mapping(data).conditions[0].trace.file == "traces/lte.csv"


def test_conditions_may_be_swept_as_a_whole(write):
    lists = "[[], [{at: 1s, link: bottleneck, rate: 1mbit}]]"
    path = write(head=HEAD.replace("conditions:\n", f"sweep: {{conditions: {lists}}}\n"))
    assert [len(variant.conditions) for _, variant in variants(load(path))] == [0, 1]


def test_a_mistake_in_a_swept_list_of_conditions_is_told_where_it_stands(problems):
    lists = "\n  - []\n  - [{at: 1s, link: bottleneck, rate: 1mb}]\n"
    found = problems(head=HEAD.replace("conditions:\n", f"sweep:\n  conditions:{lists}"))
    assert [line.split(";")[0] for line in found] == ["e.yaml:8: sweep.conditions[1][0].rate: '1mb' is not a rate"]


def test_a_part_of_a_condition_has_no_path_to_sweep(problems):
    found = problems(GOOD[0], tail="sweep: {conditions.rate: [1mbit]}\n")
    assert found[0].startswith("e.yaml:7: sweep.conditions.rate: unknown field")


def test_conditions_can_be_run(write):
    assert unsupported(load(write(GOOD[0]))) == []


# Each row: one condition, and the beginning of what is said of it after "e.yaml:6: conditions[0]".
STEP = "at: 1s, link: bottleneck"
SPAN = "from: 1s, until: 9s, every: 1s, link: bottleneck"
BAD = [
    ("3", ": must be a mapping of `key: value`, not 3"),
    ("{}", ".link: missing; say which link changes, such as link: bottleneck"),
    ("{at: 1s, link: bottleneck}", ": say what changes: one or more of rate, delay, jitter, loss and state"),
    ("{link: bottleneck, rate: 1mbit}", ": say when it happens: either at, such as at: 30s, or at_step"),
    ("{at: 1s, at_step: 3, link: bottleneck, rate: 1mbit}", ": say when it happens"),
    ("{at: 1s, link: botleneck, rate: 1mbit}", ".link: this network has no link 'botleneck'; did you mean 'bottleneck'?"),
    ("{at: 1s, link: fabric-l1-p1, state: down}", ".link: this network has no link 'fabric-l1-p1'; choose one of bottleneck, access-h1"),
    ("{at: 1s, link: access, rate: 1mbit}", ".link: this network has no link 'access'; did you mean 'access-h"),
    ("{at: 1s, lnk: bottleneck, rate: 1mbit}", ".lnk: unknown key; did you mean 'link'?"),
    (f"{{{STEP}, rate: 1mb}}", ".rate: '1mb' is not a rate"),
    (f"{{{STEP}, rate: 0mbit}}", ".rate: must be above 0; to cut the link off, write state: down"),
    (f"{{{STEP}, rate: unlimitd}}", ".rate: 'unlimitd' is not a rate"),
    (f"{{{STEP}, delay: -1ms}}", ".delay: '-1ms' is negative"),
    (f"{{{STEP}, loss: 1}}", ".loss: must be below 1"),
    (f"{{{STEP}, delay: 1ms, jitter: 2ms}}", ".jitter: jitter must not exceed the delay"),
    (f"{{{STEP}, jitter: 6ms}}", ": bottleneck would have a jitter of 6ms around a delay of 5ms"),
    (f"{{{STEP}, delay: 0s}}", ": bottleneck would have a jitter of 1ms around a delay of 0s"),
    (f"{{{SPAN}, ramp: {{delay: [5ms, 500us]}}}}", ": bottleneck would have a jitter of 1ms around a delay of 500us"),
    (
        f"{{{STEP}, state: down}}",
        ": nothing can go around bottleneck, so the workers would wait for ever; bring it up again",
    ),
    ("{at_step: 3, link: bottleneck, state: down}", ": nothing can go around bottleneck"),
    (f"{{{STEP}, rate: 10kbit}}", ": 10kbit is too slow; rates are 0 or at least 12kbit"),
    (f"{{{STEP}, state: dwn}}", ".state: 'dwn' is not possible; did you mean 'down'?"),
    (f"{{{STEP}, state: down, direction: forward}}", ".direction: a link goes down and up in both directions"),
    (f"{{{STEP}, rate: 1mbit, direction: up}}", ".direction: 'up' is not possible; choose one of both, forward, backward"),
    ("{at: 60s, link: bottleneck, rate: 1mbit}", ".at: 60s is after the end of the run, whose budget is 60s"),
    ("{at: -1s, link: bottleneck, rate: 1mbit}", ".at: '-1s' is negative"),
    ("{at_step: 500, link: bottleneck, rate: 1mbit}", ".at_step: step 500 is after the end of the run, whose budget is 500 steps"),
    ("{at_step: -1, link: bottleneck, rate: 1mbit}", ".at_step: must be at least 0"),
    (f"{{{SPAN}}}", ": says from when on, but not what happens then; add one of ramp, redraw, walk, trace, mahimahi"),
    (f"{{{SPAN}, rmp: {{rate: [1mbit, 2mbit]}}}}", ": says from when on, but not what happens then; did you mean 'ramp'?"),
    (f"{{{SPAN}, ramp: {{rate: [1mbit, 2mbit]}}, trace: a.csv}}", ": is both ramp and trace: make it 2 conditions"),
    (f"{{{SPAN}, ramp: {{}}}}", ".ramp: needs one or more of rate, delay and loss"),
    (f"{{{SPAN}, ramp: {{rate: [1mbit]}}}}", ".ramp.rate[1]: missing"),
    (f"{{{SPAN}, ramp: {{rate: [1mbit, 2mbit, 3mbit]}}}}", ".ramp.rate: must have 2 values, not 3"),
    (f"{{{SPAN}, ramp: {{rate: 1mbit}}}}", ".ramp.rate: must be a list"),
    (f"{{{SPAN}, ramp: {{rate: [1mbit, 2mb]}}}}", ".ramp.rate[1]: '2mb' is not a rate"),
    (f"{{{SPAN}, ramp: {{rte: [1mbit, 2mbit]}}}}", ".ramp.rte: unknown key; did you mean 'rate'?"),
    ("{from: 9s, until: 1s, every: 1s, link: bottleneck, ramp: {rate: [1mbit, 2mbit]}}", ".until: must be later than from"),
    ("{from: 9s, every: 1s, link: bottleneck, ramp: {rate: [1mbit, 2mbit]}}", ".until: missing; say when the ramp ends"),
    ("{until: 61s, every: 1s, link: bottleneck, ramp: {rate: [1mbit, 2mbit]}}", ".until: 61s is after the end of the run"),
    ("{from: 99s, every: 1s, link: bottleneck, redraw: {rate: [1mbit, 2mbit]}}", ".from: 99s is after the end of the run"),
    ("{link: bottleneck, redraw: {rate: [1mbit, 2mbit]}}", ".every: missing; say how often it changes"),
    ("{every: 1ms, link: bottleneck, redraw: {rate: [1mbit, 2mbit]}}", ".every: must be at least 10ms"),
    ("{every: 1s, link: bottleneck, redraw: {rate: [2mbit, 1mbit]}}", ".redraw.rate: must begin with the lower value"),
    (f"{{{SPAN}, walk: {{rate: {{between: [5mbit, 1mbit], step: 1mbit}}}}}}", ".walk.rate.between: must begin with the lower value"),
    (f"{{{SPAN}, walk: {{rate: {{between: [1mbit, 5mbit], step: 5mbit}}}}}}", ".walk.rate.step: must be above 0 and at most"),
    (f"{{{SPAN}, walk: {{rate: {{between: [1mbit, 5mbit]}}}}}}", ".walk.rate.step: missing; a walk needs the length of its steps"),
    (f"{{{SPAN}, walk: {{rate: {{betwen: [1mbit, 5mbit], step: 1mbit}}}}}}", ".walk.rate.betwen: unknown key; did you mean 'between'?"),
    (f"{{{SPAN}, walk: {{rate: 3}}}}", ".walk.rate: must be a mapping"),
    ("{link: bottleneck, trace: traces/none.csv}", ".trace: traces/none.csv cannot be read: no such file or directory"),
    ("{link: bottleneck, trace: 3}", ".trace: must be the path of a file, from the experiment file's folder, not 3"),
    ("{link: bottleneck, trace: traces/lte.csv, loop: 3}", ".loop: must be true or false, not 3"),
    ("{link: bottleneck, trace: traces/x.up}", ".trace: traces/x.up:1: unknown column '1'"),
    ("{link: bottleneck, mahimahi: traces/lte.csv}", ".mahimahi: traces/lte.csv:1: 't,rate,delay' is not a time in whole milliseconds"),
    ("{link: bottleneck, mahimahi: traces/x.up, bin: 1ms}", ".bin: must be at least 10ms"),
    ("{link: bottleneck, mahimahi: traces/x.up, bin: 2s}", ".bin: must be at most 1"),
    ("{at: 1s, background: {from: h1, to: h9}}", ".background.to: this network has no host 'h9'; choose one of h1, h2, h3, h4"),
    ("{at: 1s, background: {from: h1, to: h1}}", ".background.to: h1 is the sender"),
    ("{at: 1s, background: {from: h1}}", ".background.to: missing; say which host receives"),
    ("{background: {from: h1, to: h2}}", ".at: missing; say when the flows begin, such as at: 20s"),
    ("{at: 60s, background: {from: h1, to: h2}}", ".at: 60s is after the end of the run"),
    ("{at: 1s, background: {from: h1, to: h2, protocol: udp}}", ".background.rate: missing; a UDP flow needs a rate"),
    ("{at: 1s, background: {from: h1, to: h2, rate: 1mbit}}", ".background.rate: is for protocol: udp"),
    ("{at: 1s, background: {from: h1, to: h2, dscp: 64}}", ".background.dscp: must be at most 63"),
    ("{at: 1s, background: {from: h1, to: h2, flows: 0}}", ".background.flows: must be at least 1"),
    ("{at: 1s, background: {from: h1, to: h2, flows: 129}}", ".background.flows: must be at most 128"),
    ("{at: 1s, background: {from: h1, to: h2, pattern: {flows: [1, 129], each: 1s}}}", ".background.pattern.flows[1]: must be at most 128"),
    ("{at: 1s, background: {from: h1, to: h2, flows: 2, pattern: {flows: [1], each: 1s}}}", ".background.flows: the pattern says"),
    ("{at: 1s, for: 3s, background: {from: h1, to: h2, pattern: {flows: [1], each: 1s}}}", ".for: the pattern says how long"),
    ("{at: 1s, background: {from: h1, to: h2, pattern: {flows: [], each: 1s}}}", ".background.pattern.flows: must not be empty"),
    (
        "{at: 1s, background: {from: h1, to: h2, pattern: {flows: [1, 2], each: 60s}}}",
        ".background.pattern.flows[1]: begins too late: 61s is after the end of the run",
    ),
]


@pytest.mark.parametrize(("condition", "expected"), BAD, ids=[f"{row[0][:50]}-{i}" for i, row in enumerate(BAD)])
def test_each_mistake_is_told_with_its_line_and_remedy(problems, condition, expected):
    found = problems(condition)
    assert [line for line in found if line.startswith("e.yaml:6: conditions[0]" + expected)], found
    assert len(found) == 1 or "unknown" in str(found) or "traces/" in condition, found
    assert not [line for line in found if "Input should" in line]


def test_everything_wrong_is_told_at_once_with_its_own_line(problems, tmp_path):
    (tmp_path / "traces" / "bad.csv").write_text("t,rate\n-1,x\n5,1mbit\n3,1mbit\n")
    (tmp_path / "traces" / "bad.up").write_text("5\n3\n")
    found = problems(
        "{at: 99s, link: nowhere, rate: 1mb}",
        "{link: bottleneck, trace: traces/bad.csv}",
        "{link: bottleneck, mahimahi: traces/bad.up}",
        GOOD[3],
        GOOD[3].replace("10s, until: 30s", "29s, until: 31s").replace("delay: [0s, 5ms], loss: [0, 1%]", ""),
        head=HEAD.replace("schemes: [none]", "schemes: [no-such-scheme]"),
    )
    assert [line.split(" ", 1)[1].split(";")[0][:75] for line in found if "schemes" not in line] == [
        "conditions[0].link: this network has no link 'nowhere'",
        "conditions[0].at: 99s is after the end of the run, whose budget is 60s",
        "conditions[0].rate: '1mb' is not a rate",
        "conditions[1].trace: traces/bad.csv:2: t: '-1' is negative",
        "conditions[1].trace: traces/bad.csv:2: rate: 'x' is not a rate",
        "conditions[1].trace: traces/bad.csv:4: time 3 does not come after 5",
        "conditions[2].mahimahi: traces/bad.up:2: time 3 comes after 5",
        "conditions[4]: the rate of access-h1 would be changed by conditions[3] at t",
    ]
    assert [line.split(":")[1] for line in found] == ["4", "6", "6", "6", "7", "7", "7", "8", "10"]


REDRAW = "every: 1s, link: bottleneck, redraw: {rate: [1mbit, 2mbit]}"


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [
        ("from: 0s, until: 10s", "from: 10s, until: 20s", False),
        ("from: 0s, until: 10s", "from: 9s, until: 20s", True),
        ("from: 0s", "from: 50s", True),
        ("from: 0s, direction: forward", "from: 0s, direction: backward", False),
        ("from: 0s, direction: forward", "from: 0s", True),
    ],
)
def test_two_conditions_must_not_go_on_changing_the_same_thing_at_once(write, first, second, overlap):
    path = write(f"{{{first}, {REDRAW}}}", f"{{{second}, {REDRAW}}}")
    if overlap:
        with pytest.raises(
            SpecError, match=r"conditions\[1\]: the rate of bottleneck would be changed by conditions\[0\] at the same time"
        ):
            load(path)
    else:
        assert len(load(path).conditions) == 2


def test_what_does_not_touch_may_overlap(write):
    trace = "{link: bottleneck, trace: traces/lte.csv}"  # over after 1 s
    assert load(
        write(f"{{{REDRAW}}}", "{every: 1s, link: bottleneck, redraw: {loss: [0, 1%]}}", f"{{{REDRAW}}}".replace("bottleneck", "access-h1"))
    )
    assert load(write(trace, f"{{from: 1s, {REDRAW}}}"))


def test_a_link_without_delay_may_get_one_later_and_jitter_may_follow_the_delay(write):
    assert load(
        write("{at: 5s, link: access-h1, delay: 20ms}", "{at: 6s, link: access-h1, jitter: 20ms}", "{at: 7s, link: access-h1, rate: 1mbit}")
    )


def test_without_a_budget_in_seconds_any_time_will_do(write):
    assert load(write("{at: 9000s, link: bottleneck, rate: 1mbit}", head=HEAD.replace("seconds: 60, ", "")))


def test_a_wrong_topology_hides_nothing_else(problems):
    found = problems("{at: 99s, link: nowhere, rate: 1mb}", head=HEAD.replace("40mbit", "40mb"))
    assert [line.split(": ")[1] for line in found] == ["topology.bottleneck.rate", "conditions[0].at", "conditions[0].rate"]


def test_a_condition_that_only_one_cell_cannot_have_names_the_cell(problems):
    found = problems("{at: 30s, link: bottleneck, rate: 1mbit}", tail="sweep: {workload.budget.seconds: [60, 20]}\n")
    assert found == [
        "e.yaml:6: conditions[0].at: 30s is after the end of the run, whose budget is 20s (in the cell workload.budget.seconds: 20)"
    ]
