"""How schemes look in every figure: Okabe and Ito's colour-blind safe palette, a shade and a marker a variant."""

from __future__ import annotations

import math

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

VARIANT_MARKERS = ("s", "D", "^", "v", "P", "X")


def shade(colour: str, ratio: float) -> str:
    """Shade a family's colour by a ratio: 0.1 is the colour itself, larger ratios are paler, smaller ones darker."""
    decades = max(-1.0, min(3.0, -math.log10(ratio) - 1.0))
    towards, weight = (0, 0.22 * decades) if decades > 0 else (255, -0.5 * decades)
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (towards - c) * weight):02X}" for c in channels)


def variant_marker(value: float) -> str:
    """Choose a marker by a ratio or a rank, so that neighbouring ones differ even in black and white."""
    place = -2 * math.log10(value) if value <= 1 else 2 * math.log2(value)
    return VARIANT_MARKERS[round(place) % len(VARIANT_MARKERS)]
