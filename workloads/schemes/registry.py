"""What a scheme's entry says, how a scheme is written in an experiment, and how its folder, label and look follow from it.

Every module of this package that defines a `Scheme` adds it to the registry (see docs/adding-a-scheme.md). Ours import torch only
when a scheme is built, because the analysis and the command line read the registry too.
"""

from __future__ import annotations

import difflib
import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from workloads import styles

if TYPE_CHECKING:
    from workloads.parts import Parts

Value = float | bool | str


class SchemeError(ValueError):
    """A scheme that does not exist or cannot be built, with the nearest that can."""


@dataclass(frozen=True)
class Parameter:
    """Something a scheme can be told: a number within bounds, one of some words, or yes or no."""

    name: str
    summary: str
    above: float = -math.inf
    least: float = -math.inf
    most: float = math.inf
    default: Value | None = None  # None: the scheme chooses, unless it must be given
    required: bool = False
    short: bool = False  # may be written behind the name, as in topk-0.1
    whole: bool = False
    choices: tuple[str, ...] = ()
    flag: bool = False

    def check(self, value: object, scheme: str) -> Value:
        """Return the value as the scheme wants it, or say what is wrong with it."""
        told = f"{self.name} {value!r} of scheme {scheme!r} must be"
        if self.flag:
            if not isinstance(value, bool):
                raise SchemeError(f"{told} true or false")
            return value
        if self.choices:
            if value not in self.choices:
                raise SchemeError(f"{told} one of {', '.join(self.choices)}")
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not (self.above < value and self.least <= value <= self.most):
            lower = f"above {self.above:g}" if math.isfinite(self.above) else f"at least {self.least:g}"
            raise SchemeError(f"{told} a number {lower} and at most {self.most:g}")
        if self.whole and value != int(value):
            raise SchemeError(f"{told} a whole number")
        return float(value)


@dataclass(frozen=True)
class Scheme:
    """One entry of the registry."""

    name: str
    label: str
    colour: str
    marker: str
    summary: str
    build: Callable[[Mapping[str, Any]], Parts]
    parameters: tuple[Parameter, ...] = field(default=())
    dilates: bool = True  # False: it computes where that cannot be slowed down with the rest (see workloads/clock.py)

    @property
    def short(self) -> Parameter | None:
        """The parameter that may be written behind the name."""
        return next((p for p in self.parameters if p.short), None)


@dataclass(frozen=True)
class ResolvedScheme:
    """A scheme with all its parameters, ready for a job, a folder's name and a figure's legend."""

    name: str
    label: str
    slug: str
    colour: str
    marker: str
    params: dict[str, Any]  # {"scheme": name, parameter: value, ...}, what a job carries

    @property
    def dilates(self) -> bool:
        """Tell whether it can be slowed down with the rest of a dilated run."""
        return schemes()[self.name].dilates

    def build(self) -> Parts:
        """Build the parts; imports torch."""
        return schemes()[self.name].build({k: v for k, v in self.params.items() if k not in ("scheme", "label")})


@cache
def schemes() -> dict[str, Scheme]:
    """Find all schemes of this package's modules, by name."""
    package = importlib.import_module(__package__)
    modules = [importlib.import_module(f"{__package__}.{m.name}") for m in pkgutil.iter_modules(package.__path__) if m.name != "registry"]
    found: dict[str, Scheme] = {}
    for module in modules:
        for scheme in (value for value in vars(module).values() if isinstance(value, Scheme)):
            if found.setdefault(scheme.name, scheme) is not scheme:
                raise SchemeError(f"two schemes are called {scheme.name!r}: rename the one in {module.__name__}")
    return found


def parse_scheme(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """Parse "topk-0.1" or {"scheme": "topk", "ratio": 0.1, "label": ...} into checked parameters."""
    if isinstance(text, str):
        return _checked(_parse_name(text))
    if not isinstance(text, Mapping) or not isinstance(text.get("scheme"), str):
        raise SchemeError(f"a scheme needs a name, as in 'topk-0.1', or one under the key 'scheme': {text!r}")
    named, others = _parse_name(text["scheme"]), {key: value for key, value in text.items() if key != "scheme"}
    for key in named.keys() & others.keys():
        if named[key] != others[key]:
            raise SchemeError(f"{key} is both {named[key]:g} in {text['scheme']!r} and {others[key]!r} beside it: give it once")
    return _checked({**named, **others})


def resolve(params: str | Mapping[str, Any]) -> ResolvedScheme:
    """Give a scheme its label, folder name, colour and marker."""
    checked = parse_scheme(params)
    scheme = schemes()[checked["scheme"]]
    label, slug, colour, marker = scheme.label, scheme.name, scheme.colour, scheme.marker
    for parameter in scheme.parameters:
        value = checked.get(parameter.name)
        if value is None or value == parameter.default:
            continue
        text = f"{value:.12g}" if isinstance(value, float) else str(value).lower()  # close values have folders of their own
        if parameter.short:
            label, slug = f"{label} {text}", f"{slug}-{text}"
            colour, marker = styles.shade(scheme.colour, value), styles.variant_marker(value)
        else:
            label, slug = f"{label} {parameter.name} {text}", f"{slug}-{parameter.name}{text}"
    return ResolvedScheme(scheme.name, str(checked.get("label", label)), slug, colour, marker, checked)


def listing() -> list[tuple[str, str]]:
    """List how each scheme is written, and its summary with what else it can be told."""
    rows = []
    for scheme in schemes().values():
        name = f"{scheme.name}-{scheme.short.name.upper()}" if scheme.short and scheme.short.required else scheme.name
        told = [p.name + (f" ({' | '.join(p.choices)})" if p.choices else "") for p in scheme.parameters if not p.required]
        rows.append((name, scheme.summary + (f"; takes {', '.join(told)}" if told else "")))
    return rows


def _parse_name(text: str) -> dict[str, Any]:
    known = schemes()
    if text in known:
        return {"scheme": text}
    name = max((name for name in known if text.startswith(f"{name}-")), key=len, default="")
    value = text[len(name) + 1 :]  # may hold a dash itself: topk-1e-05
    if name:
        short = known[name].short
        if short is None:
            raise SchemeError(f"scheme {name!r} takes no value: write {name!r}, not {text!r}")
        try:
            return {"scheme": name, short.name: float(value)}
        except ValueError:
            raise SchemeError(f"{value!r} in scheme {text!r} is not a number: write for example {name}-0.1") from None
    near = difflib.get_close_matches(text.rpartition("-")[0] or text, known, 1, 0.0)[0]
    raise SchemeError(f"unknown scheme {text!r}: did you mean {near!r}? `testbed schemes` lists them all")


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    scheme = schemes()[given["scheme"]]
    known = {p.name: p for p in scheme.parameters}
    for key in given:
        if key not in known and key not in ("scheme", "label"):
            near = difflib.get_close_matches(key, [*known, "label"], 1, 0.0)[0]
            raise SchemeError(f"scheme {scheme.name!r} has no parameter {key!r}: did you mean {near!r}?")
    checked: dict[str, Any] = {"scheme": scheme.name}
    for parameter in scheme.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None and parameter.required:
            raise SchemeError(f"scheme {scheme.name!r} needs its {parameter.name}: write for example {scheme.name}-{_example(parameter)}")
        if value is not None:
            checked[parameter.name] = parameter.check(value, scheme.name)
    if "label" in given:
        checked["label"] = str(given["label"])
    return checked


def _example(parameter: Parameter) -> str:
    return "4" if parameter.whole else "0.1"
