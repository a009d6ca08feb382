"""3LC (MLSys 2019): claims of the abstract, and the evaluation as recalled."""

from __future__ import annotations

from analysis.papers.claims import AtLeast, Claim, Experiments, Factor, Paper, Sample, Study
from analysis.papers.measures import faster, fewer_bits, named, points_at_equal_steps

SIZES, TRAINED = "3lc-paper", "3lc-bandwidths"
SPARSE = {"3lc": "s 1", "3lc-1.75": "s 1.75"}
SCALED = "smaller model and data set, 4 workers; all-gather instead of a parameter server, so payloads travel N/2 times as far"
NOISE = "replayed gradients are noise, which zero-run encoding compresses less than a training's; all-gather instead of a parameter server"


def _by_sparsity(experiments: Experiments, study: str, place: slice) -> list[Sample]:
    """Return the speed-ups over none in the chosen cells, slowest link first."""
    return [sample for scheme, words in SPARSE.items() for sample in named(faster(experiments, study, scheme, "none")[place], words)]


def _traffic(experiments: Experiments) -> list[Sample]:
    return [sample for scheme, words in SPARSE.items() for sample in named(fewer_bits(experiments, TRAINED, scheme), words)]


def _falling(experiments: Experiments) -> list[Sample]:
    less, more = (fewer_bits(experiments, TRAINED, scheme) for scheme in SPARSE)
    return [Sample(one.where, other.value / one.value) for one in less for other in more if one.where == other.where]


def _accuracy(experiments: Experiments) -> list[Sample]:
    """Return the accuracy lost in the fastest cell, where none makes most steps."""
    pairs = SPARSE.items()
    return [sample for scheme, words in pairs for sample in named(points_at_equal_steps(experiments, TRAINED, scheme, "none")[-1:], words)]


PAPER = Paper(
    "3lc",
    "3LC (MLSys 2019)",
    30,
    (
        Study(
            SIZES,
            {
                "schemes": ["none", "3lc", "3lc-1.75"],
                "workload.budget": {"seconds": 20, "steps": 20},
                "workload.warmup_steps": 1,
                "sweep": {"topology.link.rate": ["10mbit"]},
            },
        ),
        Study(
            TRAINED,
            {
                "schemes": ["none", "3lc", "3lc-1.75"],
                "workload.budget": {"seconds": 40},
                "sweep": {"topology.link.rate": ["0.77mbit", "77mbit"]},
            },
        ),
    ),
    (
        Claim(
            "traffic",
            "39 to 107 times less traffic",
            "fact",
            Factor(39, 107),
            "32 over the bits a value costs in a payload, ResNet-8 trained on 4 workers, s 1 to 1.75",
            (TRAINED,),
            _traffic,
            "smaller model and data set: gradients early in training are less sparse than those of ResNet-110 over 100 epochs",
        ),
        Claim(
            "order",
            "bits a value fall as s rises",
            "recalled",
            AtLeast(1.0),
            "bits at s 1 over those at s 1.75, training",
            (TRAINED,),
            _falling,
            "none: the order holds or it does not",
        ),
        Claim(
            "time, training",
            "16 to 23 times less training time at the lowest bandwidth",
            "fact",
            Factor(16, 23),
            "throughput over none at the lowest bandwidth, ResNet-8 trained on 4 workers",
            (TRAINED,),
            lambda experiments: _by_sparsity(experiments, TRAINED, slice(1)),
            SCALED,
        ),
        Claim(
            "time, sizes",
            "16 to 23 times less training time at the lowest bandwidth",
            "fact",
            Factor(16, 23),
            "throughput over none at 10 Mbit/s, ResNet-110 on 10 workers, replay",
            (SIZES,),
            lambda experiments: _by_sparsity(experiments, SIZES, slice(1)),
            NOISE,
        ),
        Claim(
            "fast links",
            "1.3 to 1.55 times at the highest bandwidth",
            "recalled",
            Factor(1.3, 1.55),
            "throughput over none at the highest bandwidth, ResNet-8 trained on 4 workers",
            (TRAINED,),
            lambda experiments: _by_sparsity(experiments, TRAINED, slice(-1, None)),
            f"{SCALED}; communication hides behind computing where it is the shorter",
        ),
        Claim(
            "accuracy",
            "within 0.3 point of float32 up to s 1.75",
            "recalled",
            AtLeast(-0.3, "points"),
            "accuracy less none's after as many steps, ResNet-8 at the highest bandwidth",
            (TRAINED,),
            _accuracy,
            "one seed and a few hundred steps: seeds alone differ by more than 0.3 point",
        ),
    ),
)
