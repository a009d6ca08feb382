import subprocess
import sys

import pytest

from workloads.schemes import SCHEMES, SchemeError, listing, parse_scheme, resolve


def test_the_registry_is_read_without_importing_torch() -> None:
    code = "import sys, workloads.schemes, workloads.job, workloads.datasets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_and_mappings_mean_the_same() -> None:
    assert parse_scheme("topk-0.1") == {"scheme": "topk", "ratio": 0.1}
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
    ],
)
def test_mistakes_are_answered_with_the_remedy(given: object, sentence: str) -> None:
    with pytest.raises(SchemeError, match=sentence):
        parse_scheme(given)  # type: ignore[arg-type]


def test_labels_and_folder_names() -> None:
    assert (resolve("topk-0.1").label, resolve("topk-0.1").slug) == ("Top-k 0.1", "topk-0.1")
    assert resolve({"scheme": "topk", "ratio": 0.1, "label": "Mine"}).label == "Mine"
    assert resolve("none").slug == "none"


def test_every_variant_looks_different() -> None:
    resolved = [resolve(s) for s in ("none", "fp16", "topk-0.5", "topk-0.1", "topk-0.05", "topk-0.01", "topk-0.001")]
    assert len({r.colour for r in resolved}) == len(resolved)
    assert len({(r.colour, r.marker) for r in resolved}) == len(resolved)
    assert resolve("topk-0.01").marker != resolve("topk-0.1").marker


def test_the_listing_names_every_scheme() -> None:
    assert [name for name, _ in listing()] == ["none", "fp16", "topk-RATIO"]
    assert all(summary for _, summary in listing())
    assert set(SCHEMES) == {"none", "fp16", "topk"}
