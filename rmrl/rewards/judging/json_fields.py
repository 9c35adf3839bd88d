"""Fields of JSON objects in free text. Nothing is evaluated, and time is linear in the length of
the text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_READ_AT_MOST = 8
"""Limit on the times a character is read while objects are searched: deep nests of broken ones
would take quadratic time."""
_SEARCHED = 50_000
"""Number of characters, from the end, in which objects are searched: every brace that opens none
costs time in proportion."""
_LARGEST = 1e6
"""No score is larger."""
_SCALAR = (
    r'(-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9.eE])|"(?:[^"\\\n]|\\.)*+"'
    r"|'(?:[^'\\\n]|\\.)*+'|true|false)"
)


def last_field(view: str, field: str) -> Any:
    """The value of `field` in the last object that has it; null counts as having none."""
    values = _values(view, re.compile(re.escape(field)))
    if not values:
        values = _loose_values(view, re.escape(json.dumps(field, ensure_ascii=False)))
    return values[-1] if values else None


def fields_of(view: str, names: re.Pattern[str]) -> list[Any]:
    """The values of all fields whose name is one of `names`: from each outermost object the
    outermost such field."""
    name = rf"(?:\"(?i:{names.pattern})\"|'(?i:{names.pattern})')"
    return _values(view, names) or _loose_values(view, name)


def _values(view: str, names: re.Pattern[str]) -> list[Any]:
    values: list[Any] = []
    for each in outermost_objects(view[-_SEARCHED:]):
        value = outermost_field(each, names)
        if value is not None:
            values.append(value)
    return values


def _loose_values(view: str, name: str) -> list[Any]:
    """Scalars behind a quoted name, where no object can be read; Python's dicts are such texts."""
    loose = re.compile(rf"[{{,]\s{{0,64}}{name}\s{{0,64}}:\s{{0,64}}{_SCALAR}")
    values: list[Any] = []
    for match in loose.finditer(view):
        if match[1].startswith("'"):
            values.append(match[1][1:-1])
            continue
        try:
            values.append(json.loads(match[1], strict=False))
        except ValueError:
            continue
    return values


def outermost_objects(view: str) -> Iterator[dict[str, Any]]:
    """The outermost JSON objects, in order."""
    budget = _READ_AT_MOST * len(view)
    at = view.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(view, at)
            yield cast("dict[str, Any]", value)
        except json.JSONDecodeError as error:
            budget -= error.pos - at
            end = at + 1 if budget > 0 else max(error.pos, at + 1)
        except (ValueError, RecursionError):
            # A number of thousands of digits, or thousands of nested objects.
            end = at + 1_000
        at = view.find("{", end)


def numbers_of(view: str) -> Iterator[dict[str, float]]:
    """The numbers in each outermost object, by name. An object inside puts its own name in front:
    "scores A"."""
    for whole in outermost_objects(view[-_SEARCHED:]):
        numbers: dict[str, float] = {}
        left: list[tuple[str, dict[str, Any]]] = [("", whole)]
        for lead, fields in left:
            for name, content in fields.items():
                if isinstance(content, dict):
                    left.append((f"{name} ", cast("dict[str, Any]", content)))
                elif type(content) in (int, float) and abs(content) < _LARGEST:
                    numbers[lead + name] = float(content)
        yield numbers


def outermost_field(value: Any, names: re.Pattern[str]) -> Any:
    """The value of the outermost such field; on one level the first."""
    level: list[Any] = [value]
    while level:
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                fields = cast("dict[str, Any]", each)
                for name, content in fields.items():
                    if content is not None and names.fullmatch(name):
                        return content
                inner += fields.values()
            elif isinstance(each, list):
                inner += cast("list[Any]", each)
        level = inner
    return None


def entries_beside(text: str, field: str) -> dict[str, Any]:
    """The other entries of a text that is one JSON object with `field`, {} for any other text."""
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or field not in content:
        return {}
    entries = cast("dict[str, Any]", content)
    return {name: entry for name, entry in entries.items() if name != field}
