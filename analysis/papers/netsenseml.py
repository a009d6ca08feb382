"""NetSenseML (Euro-Par 2025): the abstract's claim, and what we ask of its evaluation's scenarios."""

from __future__ import annotations

from analysis.papers.claims import AtLeast, Claim, Experiments, Factor, Paper, Sample, Study
from analysis.papers.measures import FASTEST, Measure, faster, growth, named, points_at_equal_steps, points_at_equal_time

SIZES, TRAINED, DEGRADING, COMPETING = "netsenseml-paper", "netsenseml-static", "netsenseml-degrading", "netsenseml-competing"
BASELINES = {"topk-0.1": "TopK-0.1", "none": "AllReduce"}
ASSUMED = "compute time (30 ms), path delay and queue are assumed; the law is the authors', its constants are recalled"


def _over_topk(experiments: Experiments) -> list[Sample]:
    return faster(experiments, SIZES, "netsense", "topk-0.1")


def _over_both(measure: Measure, experiments: Experiments, study: str) -> list[Sample]:
    """Return how it compares with each baseline."""
    found = ((words, measure(experiments, study, "netsense", scheme)) for scheme, words in BASELINES.items())
    return [sample for words, samples in found for sample in named(samples, f"over {words}")]


def _while_changing(experiments: Experiments) -> list[Sample]:
    """Return how it compares with each baseline in either scenario."""
    scenarios = {"degrading": DEGRADING, "competing": COMPETING}
    return [sample for words, study in scenarios.items() for sample in named(_over_both(faster, experiments, study), words)]


PAPER = Paper(
    "netsenseml",
    "NetSenseML (Euro-Par 2025)",
    10,
    (
        Study(
            SIZES,
            {
                "workload.budget": {"seconds": 4, "steps": 20},
                "workload.warmup_steps": 1,
                "sweep": {"topology.link.rate": ["200mbit"]},
            },
        ),
        Study(TRAINED, {"workload.budget": {"seconds": 35}, "sweep": {"topology.bottleneck.rate": ["7.1mbit"]}}),
        Study(DEGRADING, None),
        Study(COMPETING, None),
    ),
    (
        Claim(
            "over compression",
            "1.55 to 9.84 times the throughput of compression-enabled systems where bandwidth is scarce",
            "fact",
            Factor(1.55, 9.84),
            "throughput over TopK-0.1, ResNet-18 on 8 workers, replay",
            (SIZES,),
            _over_topk,
            f"{ASSUMED}; at short delays the ratio sits at its floor of 0.005, which then sets the gain",
            over_cells=True,
        ),
        Claim(
            "over both",
            "faster than AllReduce and TopK-0.1 in every bandwidth-bound cell",
            "ours",
            AtLeast(1.0),
            "throughput over each, ResNet-18 on 8 workers, replay",
            (SIZES,),
            lambda experiments: _over_both(faster, experiments, SIZES),
            ASSUMED,
            over_cells=True,
        ),
        Claim(
            "grows",
            "the gain over AllReduce grows as bandwidth falls",
            "ours",
            AtLeast(1.0),
            "gain at the lowest bandwidth over that at the highest, replay",
            (SIZES,),
            lambda experiments: growth(experiments, SIZES, "netsense", "none"),
            ASSUMED,
        ),
        Claim(
            "changing networks",
            "faster than AllReduce and TopK-0.1 while bandwidth degrades, and beside competing flows",
            "ours",
            AtLeast(1.0),
            "throughput over each in the whole of both scenarios, ResNet-8 trained on 4 workers",
            (DEGRADING, COMPETING),
            _while_changing,
            "steps of the bandwidth are ours; links scaled by communication over computation",
        ),
        Claim(
            "equal time",
            "better accuracy than both baselines in the same time",
            "ours",
            AtLeast(0.0, "points"),
            "final accuracy less theirs, ResNet-8 trained on 4 workers",
            (TRAINED,),
            lambda experiments: _over_both(points_at_equal_time, experiments, TRAINED),
            "smaller model and data set, minutes instead of hours; links scaled by communication over computation",
            over_cells=True,
        ),
        Claim(
            "equal epochs",
            "accuracy within 1 point of AllReduce at equal epochs",
            "ours",
            AtLeast(-1.0, "points"),
            "accuracy less AllReduce's after as many steps (1000 test images), ResNet-8 trained on 4 workers, at the highest bandwidth",
            (TRAINED,),
            lambda experiments: points_at_equal_steps(experiments, TRAINED, "netsense", "none", FASTEST),
            "so few steps that error feedback has returned little of what the floor of 0.005 withholds; the paper trains for epochs",
        ),
    ),
)
