"""The registry of schemes: name, look, parameters, and how to build each.

To add a scheme: write its new part (a codec, memory, policy or exchange) in its folder, a `_build_...` here that puts the
parts together, and one entry in `SCHEMES`. Importing this file must not import torch: the analysis and the CLI use it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workloads import styles

if TYPE_CHECKING:
    from workloads.parts import Parts


class SchemeError(ValueError):
    """A scheme that does not exist or cannot be built, with the nearest that can."""


@dataclass(frozen=True)
class Parameter:
    """A number a scheme takes: low < value <= high."""

    name: str
    summary: str
    low: float
    high: float
    default: float | None = None  # None: must be given
    short: bool = False  # may be written behind the name, as in topk-0.1


@dataclass(frozen=True)
class Scheme:
    """One registry entry."""

    name: str
    label: str
    colour: str
    marker: str
    summary: str
    build: Callable[[Mapping[str, float]], Parts]
    parameters: tuple[Parameter, ...] = field(default=())


@dataclass(frozen=True)
class ResolvedScheme:
    """A scheme with all its parameters, ready for a job, a folder's name and a figure's legend."""

    name: str
    label: str
    slug: str
    colour: str
    marker: str
    params: dict[str, Any]  # {"scheme": name, parameter: value, ...}, what a job carries

    def build(self) -> Parts:
        """Build the parts; imports torch."""
        return SCHEMES[self.name].build({k: v for k, v in self.params.items() if k not in ("scheme", "label")})


def _build_none(params: Mapping[str, float]) -> Parts:
    from workloads.exchange.allreduce import AllReduce
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllReduce(), Static(), stock=True)


def _build_fp16(params: Mapping[str, float]) -> Parts:
    import torch

    from workloads.exchange.allreduce import AllReduce
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllReduce(torch.float16), Static())


def _build_topk(params: Mapping[str, float]) -> Parts:
    from workloads.compression.memory import Residual
    from workloads.compression.topk import TopK
    from workloads.exchange.allgather import AllGather
    from workloads.parts import Parts
    from workloads.policies.static import Static

    return Parts(AllGather(TopK(), Residual()), Static(params["ratio"]))


_RATIO = Parameter("ratio", "fraction of gradient elements sent", low=0.0, high=1.0, short=True)

SCHEMES: Mapping[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("none", "Uncompressed", styles.BLACK, "o", "stock DDP: dense all-reduce with its overlap", _build_none),
        Scheme("fp16", "FP16", styles.ORANGE, "h", "all-reduce in half precision", _build_fp16),
        Scheme("topk", "Top-k", styles.GREEN, "s", "the largest gradients with error feedback, all-gathered", _build_topk, (_RATIO,)),
    )
}


def parse_scheme(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """Parse "topk-0.1" or {"scheme": "topk", "ratio": 0.1, "label": ...} into checked parameters."""
    if isinstance(text, Mapping):
        given = dict(text)
        if not isinstance(given.get("scheme"), str):
            raise SchemeError(f"a scheme needs a name under the key 'scheme': {given}")
        given = {**_parse_name(given["scheme"]), **{k: v for k, v in given.items() if k != "scheme"}}
    else:
        given = _parse_name(text)
    return _checked(given)


def resolve(params: str | Mapping[str, Any]) -> ResolvedScheme:
    """Give a scheme its label, folder name, colour and marker."""
    checked = parse_scheme(params)
    scheme = SCHEMES[checked["scheme"]]
    label, slug, colour, marker = scheme.label, scheme.name, scheme.colour, scheme.marker
    for parameter in scheme.parameters:
        value = checked[parameter.name]
        if parameter.short:
            label, slug = f"{label} {value:g}", f"{slug}-{value:g}"
            colour, marker = styles.shade(scheme.colour, value), styles.variant_marker(value)
        elif value != parameter.default:
            label, slug = f"{label} {parameter.name} {value:g}", f"{slug}-{parameter.name}{value:g}"
    return ResolvedScheme(scheme.name, str(checked.get("label", label)), slug, colour, marker, checked)


def listing() -> list[tuple[str, str]]:
    """List how each scheme is written, and its summary."""
    return [("-".join([s.name, *(p.name.upper() for p in s.parameters if p.short)]), s.summary) for s in SCHEMES.values()]


def _parse_name(text: str) -> dict[str, Any]:
    if text in SCHEMES:
        return {"scheme": text}
    name, _, value = text.rpartition("-")
    if name in SCHEMES:
        short = next((p for p in SCHEMES[name].parameters if p.short), None)
        if short is None:
            raise SchemeError(f"scheme {name!r} takes no value: write {name!r}, not {text!r}")
        try:
            return {"scheme": name, short.name: float(value)}
        except ValueError:
            raise SchemeError(f"{value!r} in scheme {text!r} is not a number: write for example {name}-0.1") from None
    near = difflib.get_close_matches(name or text, SCHEMES, 1, 0.0)[0]
    raise SchemeError(f"unknown scheme {text!r}: did you mean {near!r}?")


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    scheme = SCHEMES[given["scheme"]]
    known = {p.name: p for p in scheme.parameters}
    for key in given:
        if key not in known and key not in ("scheme", "label"):
            near = difflib.get_close_matches(key, [*known, "label"], 1, 0.0)[0]
            raise SchemeError(f"scheme {scheme.name!r} has no parameter {key!r}: did you mean {near!r}?")
    checked: dict[str, Any] = {"scheme": scheme.name}
    for parameter in scheme.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None:
            raise SchemeError(f"scheme {scheme.name!r} needs its {parameter.name}: write for example {scheme.name}-0.1")
        if isinstance(value, bool) or not isinstance(value, int | float) or not parameter.low < value <= parameter.high:
            bounds = f"above {parameter.low:g} and at most {parameter.high:g}"
            raise SchemeError(f"{parameter.name} {value!r} of scheme {scheme.name!r} must be a number {bounds}")
        checked[parameter.name] = float(value)
    if "label" in given:
        checked["label"] = str(given["label"])
    return checked
