"""A command line's overrides, read into values and written from them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rmrl.config.command_line import Setting

_PLAIN = re.compile(r"[\w./:@%+~-]+")
_WORDS = ("null", "true", "false", "nan", "inf", "yes", "no", "on", "off")


def override(key: str, value: Any) -> str:
    """Return `key=value` in the form that Hydra reads back."""
    return f"{key}={hydra_text(value)}"


def hydra_text(value: Any) -> str:
    """Return a value in Hydra's override grammar: a number, word, quoted string, list or
    mapping."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{hydra_text(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(hydra_text, value))}]"
    text = str(value)
    is_word = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    if text.startswith("${") or (is_word and not _is_number(text)):
        return text
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every entry in a nested mapping. An empty mapping is a
    value."""
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for name, entry in value.items():
        yield from leaves(f"{key}.{name}" if key else str(name), entry)


def last_values(settings: Sequence[Setting]) -> dict[str, Any]:
    """Return key -> value. A key's last value counts, as in Hydra."""
    return {setting.key: setting.value for setting in settings if setting.plain}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
