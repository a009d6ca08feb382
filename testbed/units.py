"""Rates, times, sizes and fractions as people write them: parsed once, at the edge, to SI numbers, and formatted back.

Every formatter is exact: `parse_x(format_x(value)) == value`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal

RATE_UNITS = {"bit": Decimal(1), "kbit": Decimal(10) ** 3, "mbit": Decimal(10) ** 6, "gbit": Decimal(10) ** 9}  # bit/s
TIME_UNITS = {"us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "min": Decimal(60)}
SIZE_UNITS = {"B": 1, "KiB": 2**10, "kB": 10**3, "MiB": 2**20, "MB": 10**6, "GiB": 2**30, "GB": 10**9}
MAX_SIZE_BYTES = 2**63 - 1

RATE_FORMS = "write a number and bit, kbit, mbit or gbit, such as 40mbit or 1.5gbit"
TIME_FORMS = "write a number and us, ms, s or min, such as 5ms or 2min"
SIZE_FORMS = "write a number and B, kB, MB, GB, KiB, MiB or GiB, such as 100kB or 64KiB"
FRACTION_FORMS = "write a fraction such as 0.01 or a percentage such as 1%"
QUEUE_FORMS = "write a size such as 100kB or a multiple of the bandwidth-delay product such as 1bdp"

_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([A-Za-z%]*)\s*", re.ASCII)


class UnitError(ValueError):
    """A quantity that cannot be read; the sentence names the accepted forms."""


@dataclass(frozen=True)
class Queue:
    """A queue's limit: either fixed in bytes or a multiple of the bandwidth-delay product."""

    size_bytes: int | None = None
    bdp: float | None = None


def parse_rate(text: object) -> float:
    """Read a rate such as `40mbit` as bits per second; the unit's case does not matter."""
    number, unit = _split(text, "rate", RATE_FORMS)
    if unit.lower() not in RATE_UNITS:
        raise _refusal(text, "rate", RATE_FORMS)
    return _finite(number * RATE_UNITS[unit.lower()], text)


def parse_time(text: object) -> float:
    """Read a time such as `5ms` as seconds."""
    number, unit = _split(text, "time", TIME_FORMS)
    if unit not in TIME_UNITS:
        raise _refusal(text, "time", TIME_FORMS)
    return _finite(number * TIME_UNITS[unit], text)


def parse_seconds(value: object) -> float:
    """Read a time where a bare number means seconds: 60, `60s`, `2min`."""
    number, unit = _split(value, "time", TIME_FORMS + ", or bare seconds")
    if unit and unit not in TIME_UNITS:
        raise _refusal(value, "time", TIME_FORMS + ", or bare seconds")
    return _finite(number * TIME_UNITS[unit or "s"], value)


def parse_size(text: object) -> int:
    """Read a size such as `64KiB` as whole bytes; the unit's case matters, since kb is often kilobits."""
    number, unit = _split(text, "size", SIZE_FORMS)
    if unit not in SIZE_UNITS:
        raise _refusal(text, "size", SIZE_FORMS)
    size_bytes = number * SIZE_UNITS[unit]
    if size_bytes > MAX_SIZE_BYTES:
        raise UnitError(f"{_shown(text)} is too large")
    if size_bytes != int(size_bytes):
        raise UnitError(f"{_shown(text)} is not a whole number of bytes")
    return int(size_bytes)


def parse_fraction(value: object) -> float:
    """Read a fraction: 0.01 or `1%`."""
    number, unit = _split(value, "fraction", FRACTION_FORMS)
    if unit not in ("", "%"):
        raise _refusal(value, "fraction", FRACTION_FORMS)
    fraction = _finite(number.scaleb(-2) if unit else number, value)
    if fraction > 1:
        raise UnitError(f"{_shown(value)} is more than the whole; {FRACTION_FORMS}")
    return fraction


def parse_queue(text: object) -> Queue:
    """Read a queue limit: a size, or a multiple such as `0.5bdp`."""
    number, unit = _split(text, "queue", QUEUE_FORMS)
    if unit.lower() == "bdp":
        return Queue(bdp=_finite(number, text))
    if unit not in SIZE_UNITS:
        raise _refusal(text, "queue", QUEUE_FORMS)
    return Queue(size_bytes=parse_size(text))


def format_rate(rate_bps: float) -> str:
    """Write bits per second in the largest unit that keeps the number at 1 or more: 40e6 is `40mbit`."""
    return _scaled(rate_bps, (("gbit", 9), ("mbit", 6), ("kbit", 3)), ("bit", 0))


def format_time(time_s: float) -> str:
    """Write seconds as s, ms or us: 0.005 is `5ms`."""
    return _scaled(time_s, (("s", 0), ("ms", -3)), ("us", -6)) if time_s else "0s"


def format_size(size_bytes: int) -> str:
    """Write bytes in the largest unit that divides them: 65536 is `64KiB`."""
    for unit, scale in sorted(SIZE_UNITS.items(), key=lambda item: -item[1]):
        if size_bytes and size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}B"


def format_fraction(fraction: float) -> str:
    """Write a fraction as a percentage: 0.01 is `1%`."""
    return f"{_plain(Decimal(repr(float(fraction))).scaleb(2))}%"


def format_queue(queue: Queue) -> str:
    """Write a queue limit as it would stand in an experiment file."""
    if queue.size_bytes is not None:
        return format_size(queue.size_bytes)
    return f"{_plain(Decimal(repr(float(queue.bdp or 0))))}bdp"


def _split(value: object, what: str, forms: str) -> tuple[Decimal, str]:
    """Part a number from its unit. Decimal keeps `0.1ms` the float nearest to 0.0001."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _refusal(value, what, forms)
    match = _QUANTITY.fullmatch(value if isinstance(value, str) else repr(value))
    if match is None:
        raise _refusal(value, what, forms)
    if match[1].startswith("-"):
        raise UnitError(f"{_shown(value)} is negative; a {what} must not be")
    return Decimal(match[1]), match[2]


def _finite(number: Decimal, text: object) -> float:
    value = float(number)
    if math.isinf(value):
        raise UnitError(f"{_shown(text)} is too large")
    return value


def _refusal(value: object, what: str, forms: str) -> UnitError:
    return UnitError(f"{_shown(value)} is not a {what}; {forms}")


def _shown(value: object) -> str:
    return f"'{value}'" if isinstance(value, str | int | float) else repr(value)


def _scaled(value: float, units: tuple[tuple[str, int], ...], smallest: tuple[str, int]) -> str:
    """Shift the decimal point, which loses nothing, to the largest unit that keeps the number at 1 or more."""
    exact = Decimal(repr(float(value)))
    unit, power = next(((unit, power) for unit, power in units if exact >= Decimal(10) ** power), smallest)
    return f"{_plain(exact.scaleb(-power))}{unit}"


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
