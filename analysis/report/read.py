"""Take what a manifest says without trusting it: whatever is not of the expected kind is as if it were not there."""

from __future__ import annotations

import math
from typing import Any

from analysis.summary import number
from analysis.words import quantity

UNITS = {"_bps": "bit/s", "_s": "s", "_bytes": "B"}


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def say(value: Any, form: str | None = None, scale: float = 1.0, after: str = "") -> str:
    """Return a number in words, with three digits unless a form is given; a dash for what is not one."""
    known = scale * number(value)
    if math.isnan(known):
        return "-"
    return f"{known:{form or ('.0f' if abs(known) >= 100 else '.3g')}}{after}"


def measure(value: Any, unit: str) -> str:
    """Return a quantity with its unit and prefix."""
    known = number(value)
    return "-" if math.isnan(known) else quantity(known, unit)


def plain(key: str, value: Any) -> str:
    """Return a spec's value as one would say it, by the unit at the end of its name."""
    unit = next((unit for ending, unit in UNITS.items() if key.endswith(ending)), None)
    if isinstance(value, list):
        return " to ".join(plain(key, each) for each in value)
    if isinstance(value, dict):
        return ", ".join(f"{bare(name)} {plain(name, each)}" for name, each in value.items() if each is not None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit:
        return quantity(float(value), unit)
    return f"{100 * value:.3g} %" if key == "loss" else f"{value:g}"


def bare(key: str) -> str:
    """Return a spec's key without its unit."""
    ending = next((ending for ending in UNITS if key.endswith(ending)), "")
    return key.removesuffix(ending).replace("_", " ")
