"""3LC (MLSys 2019): claims of the abstract, and the evaluation as recalled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.papers.claims import AtLeast, Claim, Experiments, Factor, Paper, Sample, Study
from analysis.papers.measures import FASTEST, SLOWEST, faster, fewer_bits, named, points_at_equal_steps, ratio

SIZES, TRAINED = "3lc-paper", "3lc-bandwidths"
SERVER = {"3lc-ps": "s 1", "3lc-ps-1.75": "s 1.75"}
GATHERED = {"3lc": "s 1", "3lc-1.75": "s 1.75"}
SCALED = "smaller model and data set, 4 workers; the server is in one of them, links scaled by communication over computation"
NOISE = (
    "all-gather instead of a server: payloads travel N/2 times as far, and ours is a ring's all-reduce to begin with; gradients are noise"
)


def _each(schemes: Mapping[str, str], measure: Callable[[str], list[Sample]]) -> list[Sample]:
    """Return what is measured of each scheme, in its words."""
    return [sample for scheme, words in schemes.items() for sample in named(measure(scheme), words)]


def _falling(experiments: Experiments) -> list[Sample]:
    """Return the bits at the least s over those at the greatest, cell by cell."""
    less, more = (fewer_bits(experiments, TRAINED, scheme) for scheme in SERVER)
    return [ratio(one.where, other, one) for one, other in zip(less, more, strict=False)]  # none of a scheme that is not in the study


def _traffic(name: str, says: str, times: float, scheme: str) -> Claim:
    return Claim(
        name,
        says,
        "fact",
        Factor(times, times),
        "32 over the bits a value costs, mean of pushes and pulls, ResNet-8 trained on 4 workers",
        (TRAINED,),
        lambda experiments: fewer_bits(experiments, TRAINED, scheme),
        "smaller model and data set: gradients early in training are less sparse than those of ResNet-110 over 100 epochs",
        over_cells=True,
    )


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
                "schemes": ["none-ps", "3lc-ps", "3lc-ps-1.75"],
                "workload.budget": {"seconds": 24},
                "sweep": {"topology.link.rate": ["1.54mbit", "154mbit"]},
            },
        ),
    ),
    (
        _traffic("traffic, s 1", "39 times less traffic, the abstract's least (at s 1, as recalled)", 39, "3lc-ps"),
        _traffic("traffic, s 1.75", "107 times less traffic, the abstract's most (at s 1.75, as recalled)", 107, "3lc-ps-1.75"),
        Claim(
            "order",
            "bits a value fall as s rises",
            "recalled",
            AtLeast(1.0),
            "bits at s 1 over those at s 1.75, training",
            (TRAINED,),
            _falling,
            "none: the order holds or it does not",
            over_cells=True,
        ),
        Claim(
            "time, training",
            "16 to 23 times less training time at the lowest bandwidth",
            "fact",
            Factor(16, 23),
            "throughput over the server without compression at the lowest bandwidth, ResNet-8 trained on 4 workers",
            (TRAINED,),
            lambda experiments: _each(SERVER, lambda scheme: faster(experiments, TRAINED, scheme, "none-ps", SLOWEST)),
            SCALED,
        ),
        Claim(
            "time, sizes",
            "16 to 23 times less training time at the lowest bandwidth",
            "fact",
            Factor(16, 23),
            "throughput over all-reduce at 10 Mbit/s, ResNet-110 on 10 workers, all-gather, replay",
            (SIZES,),
            lambda experiments: _each(GATHERED, lambda scheme: faster(experiments, SIZES, scheme, "none", SLOWEST)),
            NOISE,
        ),
        Claim(
            "fast links",
            "1.3 to 1.55 times at the highest bandwidth",
            "recalled",
            Factor(1.3, 1.55),
            "throughput over the server without compression at the highest bandwidth, ResNet-8 trained on 4 workers",
            (TRAINED,),
            lambda experiments: _each(SERVER, lambda scheme: faster(experiments, TRAINED, scheme, "none-ps", FASTEST)),
            f"{SCALED}; communication hides behind computing where it is the shorter",
        ),
        Claim(
            "accuracy",
            "accuracy holds up to s 1.75 (within 0.3 point, we ask)",
            "recalled",
            AtLeast(-0.3, "points"),
            "accuracy less the uncompressed server's after as many steps (1000 test images), ResNet-8 at the highest bandwidth",
            (TRAINED,),
            lambda experiments: _each(SERVER, lambda scheme: points_at_equal_steps(experiments, TRAINED, scheme, "none-ps", FASTEST)),
            "one seed and few steps, where a paper trains for epochs: seeds alone differ by more than 0.3 point",
        ),
    ),
)
