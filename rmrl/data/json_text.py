"""JSON text for rows whose values or keys JSON lacks (timestamps, decimals, bytes), and values from
JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self, cast

_KEYS = (str, int, float, bool, type(None))


def json_text(value: Any) -> str:
    """Return `value` as JSON. Values and mapping keys that JSON lacks become text, as `str` writes
    them. Raises RecursionError where lists or mappings are nested too deep."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except TypeError:
        # Maps of parquet have keys of any type.
        return json.dumps(_with_json_keys(value), ensure_ascii=False, default=str)


class StructuredReference(str):
    """A reference answer that a row has as a list or mapping: the JSON text, which judges and
    servers read, with the value, which rules get."""

    value: Any

    def __new__(cls, value: Any) -> Self:
        self = super().__new__(cls, json_text(value))
        self.value = value
        return self

    def __getnewargs__(self) -> tuple[Any]:
        return (self.value,)


def reference_value(reference: str | None) -> Any:
    """Return a reference answer as its row has it."""
    return getattr(reference, "value", reference)


def first_text(value: Any) -> str:
    """Return the first text or number in a list or mapping, at any depth, or the value itself. "":
    there is none."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[Any, Any]", value).values())
    if isinstance(value, list | tuple):
        return next(filter(None, map(first_text, cast("list[Any]", value))), "")
    return "" if value is None else str(value)


def parsed(text: str) -> Any:
    """Parse the text as JSON. Return it unchanged where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def section_in(value: Any, key: str) -> Any:
    """Return the mapping with `key` that a JSON text holds, as tables without nested columns have
    it, and any other value unchanged."""
    if isinstance(value, str) and f'"{key}"' in value:
        section = parsed(value)
        if isinstance(section, dict) and key in section:
            return cast("Any", section)
    return value


def _with_json_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        entries: dict[Any, Any] = {
            key if isinstance(key, _KEYS) else str(key): _with_json_keys(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
        return entries
    if isinstance(value, list | tuple):
        return list(map(_with_json_keys, cast("list[Any]", value)))
    return value
