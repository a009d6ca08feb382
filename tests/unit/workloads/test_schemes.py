import subprocess
import sys

import pytest

from workloads.policies.policy import Sample
from workloads.schemes import SchemeError, listing, parse_scheme, resolve, schemes


def test_the_registry_is_read_without_importing_torch() -> None:
    code = "import sys, workloads.schemes, workloads.job, workloads.datasets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_and_mappings_mean_the_same() -> None:
    assert parse_scheme("topk-0.1") == {"scheme": "topk", "ratio": 0.1, "selection": "exact", "memory": "residual"}
    assert parse_scheme({"scheme": "topk", "ratio": 0.1}) == parse_scheme({"scheme": "topk-0.1"}) == parse_scheme("topk-0.1")
    assert parse_scheme({"scheme": "none", "label": "Dense"})["label"] == "Dense"
    assert parse_scheme(resolve("topk-0.01").params) == parse_scheme("topk-0.01")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("tpok-0.1", "did you mean 'topk'"),
        ("fp61", "did you mean 'fp16'"),
        ("topk", "needs its ratio"),
        ("topk-1.5", "at most 1"),
        ("topk-0", "above 0"),
        ("topk-many", "not a number"),
        ("none-0.1", "takes no value"),
        ({"scheme": "topk", "ratoi": 0.1}, "did you mean 'ratio'"),
        ({"ratio": 0.1}, "needs a name"),
        ("powersgd", "write for example powersgd-4"),
        ("powersgd-1.5", "a whole number"),
        ("3lc-2", "at most 1.999"),
        ("3lc-0.9995", "at least 1 and at most 1.999"),
        ("topk--0.5", "above 0"),
        (None, "needs a name"),
        ({"scheme": "topk-0.1", "ratio": 0.2}, "give it once"),
        ({"scheme": "dc2", "law": "magic"}, "one of proportional, ladder, aimd"),
        ({"scheme": "netsense", "error_feedback": 1}, "true or false"),
        ({"scheme": "netsense", "floor": True}, "must be a number"),
    ],
)
def test_mistakes_are_answered_with_the_remedy(given: object, sentence: str) -> None:
    with pytest.raises(SchemeError, match=sentence):
        parse_scheme(given)  # type: ignore[arg-type]


def test_labels_and_folder_names() -> None:
    assert (resolve("topk-0.1").label, resolve("topk-0.1").slug) == ("Top-k 0.1", "topk-0.1")
    assert resolve({"scheme": "topk", "ratio": 0.1, "label": "Mine"}).label == "Mine"
    assert resolve("none").slug == "none"


def test_parameters_show_in_label_and_folder_only_when_they_differ_from_the_default() -> None:
    assert (resolve("3lc").label, resolve("3lc").slug, resolve("3lc-1").slug) == ("3LC", "3lc", "3lc")
    assert (resolve("3lc-1.75").label, resolve("3lc-1.75").slug) == ("3LC 1.75", "3lc-1.75")
    assert resolve("3lc-ps").slug == "3lc-ps"
    assert resolve("topk-1e-05").params["ratio"] == 1e-05
    assert resolve("topk-0.12345678").slug != resolve("topk-0.12345679").slug
    assert resolve("3lc-ps-1.5").slug == "3lc-ps-1.5"
    assert resolve({"scheme": "dc2", "law": "aimd"}).slug == "dc2-lawaimd"
    assert resolve({"scheme": "netsense", "floor": 0.001}).slug == "netsense-floor0.001"
    assert resolve({"scheme": "netsense", "error_feedback": False}).label == "NetSenseML error_feedback false"


def test_every_variant_looks_different() -> None:
    dense, sparse = ("none", "none-ps", "fp16", "bf16"), ("topk-0.5", "topk-0.1", "topk-0.05", "topk-0.01", "topk-0.001", "randomk-0.1")
    quantized = ("qsgd", "terngrad", "onebit", "natural", "powersgd-2", "powersgd-4", "3lc", "3lc-1.75", "3lc-ps")
    resolved = [resolve(s) for s in (*dense, *sparse, *quantized, "dc2", "netsense", "netsense-sdn", "budget")]
    assert len({(r.colour, r.marker) for r in resolved}) == len(resolved)
    five = [resolve(s) for s in ("none", "topk-0.1", "3lc", "dc2", "netsense")]
    assert len({r.colour for r in five}) == 5
    assert len({r.marker for r in five}) == 5  # in print without colours
    assert resolve("topk-0.01").marker != resolve("topk-0.1").marker


def test_the_listing_names_every_scheme() -> None:
    names = {"none", "none-ps", "fp16", "bf16", "topk-RATIO", "randomk-RATIO", "qsgd", "terngrad", "onebit", "natural", "powersgd-RANK"}
    assert {name for name, _ in listing()} == names | {"3lc", "3lc-ps", "dc2", "netsense", "netsense-sdn", "budget"}
    assert all(summary for _, summary in listing())


def test_every_scheme_can_be_built() -> None:
    for name, scheme in schemes().items():
        parts = resolve(f"{name}-{4 if scheme.short.whole else 0.1}" if scheme.short and scheme.short.required else name).build()
        assert parts.stock == (name == "none")
        assert parts.policy.senses == (name in ("dc2", "netsense", "netsense-sdn", "budget"))
        assert parts.policy.assisted == (name == "netsense-sdn")


def test_constants_given_reach_the_policy() -> None:
    assert resolve({"scheme": "netsense", "initial": 0.3}).build().policy.decide(Sample(0)).ratio == 0.3
    assert resolve({"scheme": "netsense", "variant": "prototype"}).build().policy.decide(Sample(0)).ratio == 0.75
    assert resolve({"scheme": "netsense-sdn", "initial": 0.3}).build().policy.decide(Sample(0)).ratio == 0.3
    assert resolve("dc2").build().policy.decide(Sample(0)).ratio == 1.0
    assert resolve({"scheme": "netsense", "prune": 0.5}).build().pruned == 0.5
