"""What the controller and its telemetry cost, and what they bring a scheme: rules, paths, throughput beside telemetry, `netsense-sdn`."""

from __future__ import annotations

import statistics
from itertools import pairwise

from analysis.metrics import repeats_interval
from tests.emulation.scenarios import play

LEAVES, SPINES, WORKERS = 16, 4, 32
REPEATS = 5
COMPETING_REPEATS = 5
STEPS = 60
SETTLED = 0.15  # within this of the median of its last steps, a ratio has arrived


def settling_steps(ratios: list[float], first_after: int) -> int:
    """Return how many steps after a change begin before the ratio is at its new value, the median of the last third, and stays there."""
    later = ratios[first_after:]
    target = statistics.median(later[-len(later) // 3 :])
    off = [i for i, ratio in enumerate(later) if abs(ratio / target - 1) > SETTLED]
    return off[-1] + 1 if off else 0


def rule_row() -> str:
    """Install the rules of a large fabric a few times."""
    trials = [play("many_rules", room="controlled", leaves=LEAVES, spines=SPINES, workers=WORKERS) for _ in range(3)]
    seconds = ", ".join(f"{trial['seconds']:.2f}" for trial in trials)
    return f"{trials[0]['rules']} rules on {LEAVES + SPINES} switches, {WORKERS} hosts: {seconds} s"


def group_row() -> str:
    """Spread TCP connections over four spines by select groups."""
    shares = play("select_groups", room="controlled", connections=256, spines=SPINES)["shares"]
    return ", ".join(f"{spine} {share:.1%}" for spine, share in sorted(shares.items()))


def telemetry_row() -> str:
    """Compare iperf3's goodput with telemetry on and off, in pairs."""
    seen = play("paired_throughput", room="telemetered", rate_bps=50e6, seconds=4, repeats=REPEATS)
    ratios = [on / off for on, off in zip(seen["on_bps"], seen["off_bps"], strict=True)]
    interval = repeats_interval(ratios)
    return f"{statistics.mean(ratios):.4f} ({interval.low:.4f} to {interval.high:.4f}) over {REPEATS} pairs, {seen['queues']} queues"


def step_rows() -> list[str]:
    """Change the bottleneck from 40 to 10 Mbit/s in mid-run."""
    rows = []
    for scheme in ("netsense", "netsense-sdn"):
        seen = play("rate_step", room="live_runs", scheme=scheme, before_bps=40e6, after_bps=10e6, steps=STEPS)
        before = statistics.median(seen["ratios"][STEPS // 4 : seen["first_after"]])
        after = statistics.median(seen["ratios"][-STEPS // 6 :])
        moves = sum(a != b for a, b in pairwise(seen["ratios"][seen["first_after"] :]))
        rows.append(f"| {scheme} | {before:.4f} | {after:.4f} | {settling_steps(seen['ratios'], seen['first_after'])} | {moves} |")
    return rows


def competing_rows() -> list[str]:
    """Train against competing TCP flows."""
    rows = []
    for flows in (1, 4):
        seen: dict[str, list[dict[str, float]]] = {"netsense": [], "netsense-sdn": []}
        for _ in range(COMPETING_REPEATS):
            for scheme, trials in seen.items():
                trials.append(play("competing", room="live_runs", scheme=scheme, rate_bps=20e6, seconds=12, flows=flows))
        ratios = [a["samples_s"] / b["samples_s"] for a, b in zip(seen["netsense-sdn"], seen["netsense"], strict=True)]
        interval = repeats_interval(ratios)
        gain = f"{statistics.mean(ratios):.2f} ({interval.low:.2f} to {interval.high:.2f})"
        for scheme, trials in seen.items():
            samples_s = statistics.mean(trial["samples_s"] for trial in trials)
            ratio = statistics.mean(trial["ratio"] for trial in trials)
            beside = gain if scheme == "netsense-sdn" else "1"
            rows.append(f"| {flows} each way | {scheme} | {samples_s:.0f} | {ratio:.4f} | {beside} |")
    return rows


def section() -> str:
    """Measure and describe."""
    rules, groups, telemetry = rule_row(), group_row(), telemetry_row()
    steps, competing = "\n".join(step_rows()), "\n".join(competing_rows())
    return f"""## The controller
- Rules installed and acknowledged, from pointing the switches at the controller to the last barrier: {rules}.
- Shares of 256 TCP connections over {SPINES} spines by select groups: {groups}.
- iperf3's goodput on a 50 Mbit/s dumbbell with telemetry on, over that with it off: {telemetry}.

Replay of ResNet-8's gradients, 4 workers, 5 ms: the bottleneck goes from 40 to 10 Mbit/s in mid-run. *Steps* that begin after the change
before the ratio is within {SETTLED:.0%} of its new median for good; *moves*: how often it changed after the change.

| scheme | ratio before | after | steps | moves |
|---|---|---|---|---|
{steps}

The same at 20 Mbit/s against iperf3's TCP flows over the bottleneck, {COMPETING_REPEATS} repeats in turn. On throughput alone a smaller
ratio always wins.

| flows | scheme | samples/s | mean ratio | over netsense |
|---|---|---|---|---|
{competing}
"""


if __name__ == "__main__":
    print(section())
