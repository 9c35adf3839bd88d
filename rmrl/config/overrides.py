"""The words of a command line in Hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rmrl.config.command_line import Setting, is_flag, malformed
from rmrl.errors import first_line
from rmrl.files import is_there

_SLIP = re.compile(r"""[\[{'"=]|\w+\(|\S*[\]}]$|.*(,\S|\$\{)""", re.DOTALL)
"""A value that is probably meant as a list, mapping, function, sweep or interpolation."""
_SWEEPS = {"-m", "--multirun"}


@lru_cache(maxsize=4096)
def read_override(text: str) -> tuple[Override | None, str]:
    """Return (override, "") or (None, the problem)."""
    try:
        return OverridesParser.create().parse_override(text), ""
    except HydraException as error:
        return None, malformed(text, first_line(error))


def parse(overrides: Sequence[str]) -> tuple[list[Setting], list[str]]:
    """Parse overrides into (settings, sentences for malformed ones). Flags are in neither."""
    settings: list[Setting] = []
    problems: list[str] = []
    sweeps = not _SWEEPS.isdisjoint(overrides)
    for origin, (before, word) in enumerate(zip(["", *overrides], overrides, strict=False)):
        if is_flag(word, before):
            continue
        text = _quoted(word, sweeps=sweeps)
        override, problem = read_override(text)
        if override is None:
            problems.append(problem)
            continue
        key = override.key_or_group
        if override.package is not None:
            key += f"@{override.package}"
        plain = not override.is_sweep_override() and not override.is_delete()
        value = override.value() if plain else None
        settings.append(Setting(key=key, value=value, text=text, plain=plain, origin=origin))
    return settings, problems


def _quoted(word: str, *, sweeps: bool) -> str:
    """Return an override with its value in quotes where the grammar has no other way to say it: a
    text with letters beyond ASCII or with marks (`it's`), a path with a comma that exists, and
    outside a sweep a sentence with commas."""
    key, equals, value = word.partition("=")
    override, _ = read_override(word)
    is_several = override is not None and override.is_sweep_override()
    if not equals or not value or (override is not None and not is_several):
        return word
    if not is_there(value) and (_SLIP.match(value) or (is_several and sweeps)):
        return word
    text = f"{key}={quoted(value)}"
    return word if read_override(text)[0] is None else text


def quoted(value: str) -> str:
    """Return a text in quotes, as the grammar reads it. A backslash escapes before quotes alone."""
    escaped = re.sub(r"(\\*)('|$)", lambda marks: marks[1] * 2 + "\\'" * len(marks[2]), value)
    return f"'{escaped}'"
