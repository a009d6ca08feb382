"""The schemes that docs/adding-a-scheme.md takes a newcomer through, run as they are written there."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import workloads.schemes
from analysis.style import scheme_style
from workloads.compression.codec import Codec, PayloadError
from workloads.exchange.allgather import AllGather
from workloads.hooks import attach, stats
from workloads.policies.policy import Sample
from workloads.schemes import listing, resolve, schemes

DOC = Path(__file__).resolve().parents[3] / "docs/adding-a-scheme.md"
FILES = {
    name: code
    for code in re.findall(r"^```python\n(.*?)^```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    for name in re.findall(r'Scheme\(\s*(?:name=)?"(\w+)"', code)  # a block that defines no scheme is no file
}
STEPS = 12


@pytest.fixture(autouse=True)
def _dropped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setattr(workloads.schemes, "__path__", [*workloads.schemes.__path__, str(tmp_path)])
    schemes.cache_clear()
    yield
    schemes.cache_clear()
    for name in FILES:
        sys.modules.pop(f"workloads.schemes.{name}", None)
        vars(workloads.schemes).pop(name, None)


def codec_of(scheme: str) -> Codec:
    exchange = resolve(scheme).build().exchange
    assert isinstance(exchange, AllGather)
    return exchange.codec


def test_the_page_has_both_schemes() -> None:
    assert set(FILES) == {"threshold", "halve"}


def test_a_file_is_all_it_takes_to_be_listed() -> None:
    assert {"threshold-LEAST", "halve"} <= {name for name, _ in listing()}


@pytest.mark.parametrize(("slug", "label"), [("threshold-0.01", "Threshold 0.01"), ("halve", "Halve")])
def test_it_resolves_and_every_figure_knows_it(slug: str, label: str) -> None:
    resolved, style = resolve(slug), scheme_style(slug)
    assert (resolved.slug, resolved.label) == (slug, label)
    assert style.known and (style.label, style.colour, style.marker) == (label, resolved.colour, resolved.marker)


def test_the_codec_sends_what_reaches_the_threshold() -> None:
    codec, values = codec_of("threshold-0.5"), torch.tensor([0.1, -0.7, 0.0, 0.5, -0.4])
    assert codec.decode(codec.encode(values)).tolist() == torch.tensor([0.0, -0.7, 0.0, 0.5, 0.0]).tolist()
    assert codec.decode(codec.encode(torch.zeros(3))).tolist() == [0, 0, 0]
    assert not codec.decode(codec.encode(torch.tensor([0.1, torch.nan]))).isfinite().all()


def test_the_codec_refuses_a_cut_payload_and_leaves_the_tensor_alone() -> None:
    codec, out = codec_of("threshold-0.5"), torch.ones(5)
    payload = codec.encode(torch.tensor([0.1, -0.7, 0.0, 0.5, -0.4]))
    for length in range(payload.numel()):
        with pytest.raises(PayloadError):
            codec.add_decoded(payload[:length], out)
    assert torch.equal(out, torch.ones(5))


def test_the_policy_answers_to_what_it_is_told() -> None:
    policy = resolve("halve").build().policy
    ratios = [
        policy.decide(sample).ratio for sample in (Sample(0), Sample(1, exchange_s=2, compute_s=1), Sample(2, exchange_s=1, compute_s=2))
    ]
    assert ratios == pytest.approx([0.1, 0.05, 0.055])
    policy.reset()
    assert policy.decide(Sample(0)).ratio == 0.1


@pytest.mark.parametrize("scheme", ["threshold-0.01", "halve"])
def test_a_model_trains_with_it(scheme: str, model: DistributedDataParallel) -> None:
    attach(model, scheme)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs, losses = torch.randn(16, 20, generator=torch.Generator().manual_seed(2)), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert stats(model).steps == STEPS
