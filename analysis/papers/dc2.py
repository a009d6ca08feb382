"""DC2 (IEEE INFOCOM 2021): claims of the abstract. The law is not public: ours is a reconstruction ("DC2-style")."""

from __future__ import annotations

from analysis.papers.claims import Claim, Experiments, Factor, Paper, Sample, Study
from analysis.papers.measures import faster_once_settled, named, sooner

SIZES, LOW, HIGH = "dc2-paper", "dc2-low", "dc2-high"
UNIFORM = ("topk-0.1", "topk-0.01", "topk-0.001")
QUICK_TRAINING = {
    "schemes": ["none", "topk-0.1", "topk-0.01", "dc2"],
    "workload.budget": {"seconds": 30},
    "workload.eval_every": "4s",
}
ONE_DIP = [
    {"every": "5s", "link": "bottleneck", "walk": {"delay": {"between": ["20ms", "100ms"], "step": "20ms"}}},
    {"at": "12s", "link": "bottleneck", "rate": "0.18mbit"},
    {"at": "17s", "link": "bottleneck", "rate": "1.8mbit"},
]
OURS = "the law is our reconstruction; cells, models and uniform ratios of the paper are not known, so the grid is ours"
SETTLED = f"{OURS}; a median hardly sees the steps in which the controller comes down from no compression, if they are few"


def _trained(experiments: Experiments, *over: str) -> list[Sample]:
    variation = {LOW: "low variation", HIGH: "high variation"}
    found = ((f"over {other}, {words}", sooner(experiments, study, "dc2", other)) for study, words in variation.items() for other in over)
    return [sample for where, samples in found for sample in named(samples, where)]


def _replayed(experiments: Experiments) -> list[Sample]:
    return [sample for other in UNIFORM for sample in named(faster_once_settled(experiments, SIZES, "dc2", other), f"over {other}")]


PAPER = Paper(
    "dc2",
    "DC2 (IEEE INFOCOM 2021)",
    20,
    (
        Study(
            SIZES, {"schemes": ["none", "topk-0.01", "dc2"], "workload.budget": {"seconds": 14, "steps": 40}, "workload.warmup_steps": 1}
        ),
        Study(LOW, QUICK_TRAINING),
        Study(HIGH, {**QUICK_TRAINING, "conditions": ONE_DIP}),
    ),
    (
        Claim(
            "over none, step time",
            "up to 41 times faster than without compression: of a step, where the paper's is to an accuracy",
            "fact",
            Factor(None, 41),
            "median step of none over our median step, ResNet-18 on 8 workers, replay",
            (SIZES,),
            lambda experiments: faster_once_settled(experiments, SIZES, "dc2", "none"),
            SETTLED,
        ),
        Claim(
            "over none, accuracy",
            "up to 41 times faster than without compression, to an accuracy",
            "fact",
            Factor(None, 41),
            "time to the highest accuracy both reach, ResNet-8 trained on 4 workers",
            (LOW, HIGH),
            lambda experiments: _trained(experiments, "none"),
            f"{OURS}; none makes few steps in so short a run, and evaluations are seconds apart",
        ),
        Claim(
            "over uniform, step time",
            "up to 5.3 times faster than uniform compression: of a step, where the paper's is to an accuracy",
            "fact",
            Factor(None, 5.3),
            "median step of each uniform ratio over our median step, ResNet-18 on 8 workers, replay",
            (SIZES,),
            _replayed,
            SETTLED,
        ),
        Claim(
            "over uniform, accuracy",
            "up to 5.3 times faster than uniform compression, to an accuracy",
            "fact",
            Factor(None, 5.3),
            "time to the highest accuracy both reach, ResNet-8 trained on 4 workers",
            (LOW, HIGH),
            lambda experiments: _trained(experiments, *UNIFORM),
            OURS,
        ),
    ),
)
