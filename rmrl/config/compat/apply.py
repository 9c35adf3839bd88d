"""The table applied to one command line's overrides."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmrl.config.command_line import Setting
from rmrl.config.compat.conversions import CONVERSIONS, Converted
from rmrl.config.compat.given_values import last_values, leaves, override
from rmrl.config.compat.keys_of_verl import TABLE, Fate, KeyFate, fate_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result for one override."""

    setting: Setting
    fate: Fate
    becomes: tuple[str, ...] = ()
    """The overrides passed on in its place. A conversion's stand at the first of its keys."""
    why: str = ""
    """no effect: the reason, or "" for a value that changes nothing. refused: the problem, a full
    sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A translated command line: one record per override, in order."""

    records: tuple[Record, ...]
    converted: tuple[str, ...]
    """Overrides that conversions make: passed on before the others, which win."""

    def passed_on(self, origin: int) -> list[str]:
        """Overrides to pass on for the one at position `origin`, besides `converted`."""
        texts = itertools.chain.from_iterable(
            record.becomes
            for record in self.records
            if record.setting.origin == origin and record.fate in ("same", "renamed")
        )
        return list(texts)

    @property
    def problems(self) -> list[str]:
        """One sentence per problem, each once."""
        sentences = [record.why for record in self.records if record.fate == "refused"]
        return list(dict.fromkeys(filter(None, sentences)))

    @property
    def notices(self) -> list[str]:
        """One line per reason, with the keys that have no effect for it."""
        keys_of: dict[str, list[str]] = {}
        for record in self.records:
            if record.fate == "no effect" and record.why:
                keys_of.setdefault(record.why, []).append(record.setting.key)
        return [
            f"no effect here: {', '.join(dict.fromkeys(keys))} ({why})"
            for why, keys in keys_of.items()
        ]


def apply(settings: Sequence[Setting], table: Sequence[KeyFate] = TABLE) -> Applied:
    """Translate every override. A key without a row passes through."""
    single: list[Setting] = []
    for setting in settings:
        entries: list[tuple[str, Any]] = []
        if isinstance(setting.value, dict):
            entries = list(leaves(setting.key, setting.value))
        whole = fate_of(setting.key, table)
        moves = whole is not None and whole.target.endswith(".*") and bool(entries)
        if not moves and all(fate_of(key, table) in (None, whole) for key, _ in entries):
            single.append(setting)
            continue
        # Entries of the mapping have rows of their own: one override for each.
        plus = setting.text[: len(setting.text) - len(setting.text.lstrip("+"))]
        for key, value in entries:
            text = plus + override(key, value)
            single.append(Setting(key=key, value=value, text=text, origin=setting.origin))
    rows = [fate_of(setting.key, table) for setting in single]
    values = last_values(single)
    keys_of: dict[str, list[str]] = {}  # name of each conversion with work to do -> its keys
    for setting, row in zip(single, rows, strict=True):
        if row is not None and row.by and setting.plain:
            keys_of.setdefault(row.by, []).append(setting.key)
    results: dict[str, Converted] = {}
    for name, keys in keys_of.items():
        try:
            results[name] = CONVERSIONS[name]({key: values[key] for key in keys}, values)
        except (TypeError, ValueError) as error:  # a value is no number where it needs one
            reason = f"it cannot be converted ({error}); give a number, as verl has it"
            results[name] = Converted(problems=dict.fromkeys(keys, reason))
    records = [_record(each, row, results) for each, row in zip(single, rows, strict=True)]
    converted = itertools.chain.from_iterable(result.overrides for result in results.values())
    return Applied(records=tuple(records), converted=tuple(converted))


def _record(setting: Setting, row: KeyFate | None, results: dict[str, Converted]) -> Record:
    """Apply a table row (None: the key has none) to one override.

    `results`: each conversion's output by its name.
    """
    section = row is not None and row.target.endswith(".*")
    if row is None or (row.fate == "renamed" and isinstance(setting.value, dict) and not section):
        return Record(setting=setting, fate="same", becomes=(setting.text,))
    if not setting.plain and row.fate != "renamed":
        problem = f"{setting.text}: a sweep and a deletion need a key of rmrl; {row.why}"
        return Record(setting=setting, fate="refused", why=problem)
    if row.fate == "converted":
        return _converted(setting, row, results[row.by])
    if row.accepts_value(setting.value):
        return Record(setting=setting, fate="no effect")
    if row.fate == "renamed":
        # The key exists in the schema here, so the + that verl needs for a new one is dropped.
        key = row.renamed(setting.key)
        text = setting.text.lstrip("+").replace(setting.key, key, 1)
        # A section's new name may have rows below it.
        below = fate_of(key, TABLE)
        if below is not None and below.fate != "converted":
            moved = _record(replace(setting, key=key, text=text), below, results)
            return replace(moved, setting=setting)
        return Record(setting=setting, fate="renamed", becomes=(text,), why=row.why)
    why = row.why if row.fate == "no effect" else f"{setting.key}={setting.value}: {row.why}"
    return Record(setting=setting, fate=row.fate, why=why)


def _converted(setting: Setting, row: KeyFate, result: Converted) -> Record:
    key = setting.key
    if key in result.problems:
        problem = f"{key}={setting.value}: {result.problems[key]}"
        return Record(setting=setting, fate="refused", why=problem)
    if key in result.idle:
        return Record(setting=setting, fate="no effect", why=result.idle[key])
    if setting.text.lstrip("+") in result.overrides:
        # `Applied.converted` passes it on, so "same" has nothing more to pass on.
        return Record(setting=setting, fate="same", why=row.why)
    return Record(setting=setting, fate="converted", becomes=result.overrides, why=row.why)
