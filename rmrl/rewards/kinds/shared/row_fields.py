"""Entries of a row that a server's verifier reads beside the response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmrl.data.json_text import reference_value
from rmrl.types import ScoreItem

OWN_KEY = "nemo_gym"
"""Entry of extra_info that holds the fields of the post alone."""
_PLAIN = ("ground_truth", "data_source")
_PREFIX = "extra_info."


def row_fields(item: ScoreItem, fields: Mapping[str, Any]) -> str:
    """Return the row's entries of the post as the text of a JSON object with sorted keys.

    `fields`: entry -> field of the row. {}: the entries of `extra_info.nemo_gym`, or of
    `extra_info`. Entries without a value are left out: a column of a table has null where another
    row has a value.
    """
    entries: dict[str, Any] = {}
    if fields:
        for name, source in fields.items():
            entries[name] = field_of(item, str(source))
    else:
        entries.update(_own_entries(item.extra_info))
    present = {str(name): value for name, value in entries.items() if value is not None}
    return json.dumps(present, sort_keys=True, default=_as_json)


def field_of(item: ScoreItem, source: str) -> Any:
    """Return a row's field: ground_truth, data_source or extra_info.<key>; None where the row
    does not have it."""
    if source in _PLAIN:
        return reference_value(getattr(item, source))
    return item.extra_info.get(source.removeprefix(_PREFIX))


def row_fields_problems(fields: Mapping[str, Any], where: str) -> list[str]:
    """Return a sentence for every source that is no field of a row."""
    problems: list[str] = []
    for name, source in fields.items():
        is_field = source in _PLAIN or (isinstance(source, str) and source.startswith(_PREFIX))
        if not is_field:
            problems.append(
                f"{where}.{name}={source!r}: give ground_truth, data_source or extra_info.<key>"
            )
    return problems


def _own_entries(extra_info: Mapping[str, Any]) -> Mapping[str, Any]:
    entries = extra_info.get(OWN_KEY)
    if isinstance(entries, str):
        try:
            entries = json.loads(entries)
        except ValueError:
            entries = None
    return entries if isinstance(entries, Mapping) else extra_info


def _as_json(value: Any) -> Any:
    """A value that JSON does not know: arrays as lists, anything else (a date) as its text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
