"""Put the page together as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import io
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from PIL import Image

from analysis import parallel
from analysis.report.page import Page

COLOURS = 128  # enough for a figure's lines, letters and their smooth edges; a third of the bytes
TALL = 2.0  # a figure this many times as high as wide is folded


def render(page: Page) -> str:
    """Return the page as HTML."""
    found = parallel.each(picture_data, [picture.path for picture in page.pictures])
    pictures = [(picture, *data) for picture, data in zip(page.pictures, found, strict=True)]
    series = _json([{"title": group.title, "runs": group.runs} for group in page.groups])
    assets = {"css": _asset("page.css"), "js": _asset("page.js")}
    return _environment().get_template("page.html").render(page=page, pictures=pictures, series=series, **assets)


def picture_data(path: Path) -> tuple[str, int, int, bool]:
    """Return a PNG with fewer colours as a data URI, its width and height on the page, and whether it is very tall."""
    with Image.open(path) as picture:
        width, height = picture.size
        small = io.BytesIO()
        reduced = picture.convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        reduced.save(small, "PNG", compress_level=6)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}", width, height, height > TALL * width


def data_uri(text: str, kind: str) -> str:
    """Return a text as something to be saved from the page."""
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data_uri"] = data_uri
    return environment


def _asset(name: str) -> str:
    return files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
