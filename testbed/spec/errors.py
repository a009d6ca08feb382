"""Turn what pydantic found into sentences: the field to blame, what is wrong with it, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from testbed.spec.fields import Faults, Place

SENTENCES = {
    "model_type": "must be a mapping of `key: value`, not {input}",
    "model_attributes_type": "must be a mapping of `key: value`, not {input}",
    "dict_type": "must be a mapping of `key: value`, not {input}",
    "tuple_type": "must be a list, not {input}",
    "too_short": "must not be empty",
    "too_long": "must have {max_length} values, not {actual_length}",
    "string_type": "must be text, not {input}; put it in quotes",
    "string_pattern_mismatch": "{input} has characters that do not belong here",
    "bool_type": "must be true or false, not {input}",
    "int_type": "must be a whole number, not {input}",
    "int_parsing": "must be a whole number, not {input}",
    "int_from_float": "must be a whole number, not {input}",
    "float_type": "must be a number, not {input}",
    "float_parsing": "must be a number, not {input}",
    "finite_number": "must be a finite number, not {input}",
    "greater_than": "must be above {gt}, not {input}",
    "greater_than_equal": "must be at least {ge}, not {input}",
    "less_than": "must be below {lt}, not {input}",
    "less_than_equal": "must be at most {le}, not {input}",
}


def problems(error: ValidationError, root: type[BaseModel]) -> Iterator[tuple[Place, str]]:
    """Yield each problem as the path of a field, as the file spells it, and a sentence."""
    for item in error.errors(include_url=False):
        place, model = _blamed(item["loc"], root)
        kind, context = item["type"], item.get("ctx", {})
        cause = context.get("error")
        if isinstance(cause, Faults):
            yield from ((place + at, message) for at, message in cause.faults)
        elif kind == "value_error":
            yield place, str(cause)
        elif kind == "missing":
            yield place, f"missing; {_description(model, place[-1])}" if _description(model, place[-1]) else "missing"
        elif kind == "extra_forbidden":
            yield place, f"unknown key; {suggestion(str(place[-1]), keys(model), 'valid keys are')}"
        elif kind == "literal_error":
            yield place, f"{_shown(item['input'])} is not possible; {suggestion(str(item['input']), _quoted(context['expected']))}"
        elif kind == "union_tag_invalid":
            yield (*place, "kind"), f"'{context['tag']}' is not possible; {suggestion(context['tag'], _quoted(context['expected_tags']))}"
        elif kind == "union_tag_not_found":
            yield (*place, "kind"), f"missing; choose one of {', '.join(_tags(model, place[-1]))}"
        elif kind in SENTENCES:
            yield place, SENTENCES[kind].format(**{**context, "input": _shown(item["input"])})
        else:
            yield place, item["msg"][:1].lower() + item["msg"][1:]


def suggestion(word: str, valid: list[str], otherwise: str = "choose one of", listed: list[str] | None = None) -> str:
    """Name the nearest valid word, else list them all (or those in `listed`)."""
    near = [path for path in valid if path.endswith(f".{word}")] or get_close_matches(word, valid, n=1)
    return f"did you mean '{near[0]}'?" if near else f"{otherwise} {', '.join(listed or valid)}"


def keys(model: type[BaseModel]) -> list[str]:
    """Return a model's keys as the file spells them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def field_paths(model: type[BaseModel], data: object, prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every field that may be set, given the kinds that `data` has chosen."""
    chosen = data if isinstance(data, Mapping) else {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        yield prefix + key
        below = chosen.get(key)
        members = [] if get_origin(field.annotation) is tuple else _models(field.annotation)  # a list's items have no dotted path
        kind = below.get("kind") if isinstance(below, Mapping) else None
        for member in [m for m in members if _kind(m) == kind] or members:
            yield from (path for path in field_paths(member, below, f"{prefix}{key}."))


def dotted(place: Place) -> str:
    """Write a place as people do: topology.bottleneck.rate, schemes[1]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")


def _blamed(loc: tuple[str | int, ...], root: type[BaseModel]) -> tuple[Place, type[BaseModel]]:
    """Drop the kinds pydantic puts among the keys; return the place and the innermost model around it."""
    place: Place = ()
    models, model = [root], root
    for part in loc:
        if len(models) > 1 and any(_kind(m) == part for m in models):
            models = [m for m in models if _kind(m) == part]
            continue
        place = (*place, part)
        if models:
            model = models[0]
            field = next((f for name, f in model.model_fields.items() if (f.alias or name) == part), None)
            models = _models(field.annotation) if field else []
    return place, model


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models an annotation mentions: one, the members of a union, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _kind(model: type[BaseModel]) -> str | None:
    return get_args(model.model_fields["kind"].annotation)[0] if "kind" in model.model_fields else None


def _tags(model: type[BaseModel], key: object) -> list[str]:
    field = next(f for name, f in model.model_fields.items() if (f.alias or name) == key)
    return [kind for kind in map(_kind, _models(field.annotation)) if kind]


def _description(model: type[BaseModel], key: object) -> str | None:
    return next((f.description for name, f in model.model_fields.items() if (f.alias or name) == key), None)


def _quoted(expected: str) -> list[str]:
    return re.findall(r"'([^']*)'", expected)


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
