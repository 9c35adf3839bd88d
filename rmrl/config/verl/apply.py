"""The table applied to the overrides of one command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmrl.config.verl.conversions import CONVERSIONS, Converted
from rmrl.config.verl.fates import Fate, KeyFate, fate_of
from rmrl.config.verl.given import Given, last_values, leaves, override
from rmrl.config.verl.table import TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What became of one override."""

    given: Given
    fate: Fate
    becomes: tuple[str, ...] = ()
    """The overrides passed on in its place. A conversion's stand at the first of its keys."""
    why: str = ""
    """no effect: the reason, or "" where it asks for what is always so. refused: the problem, a
    full sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A command line: what became of each override, in their order."""

    records: tuple[Record, ...]
    converted: tuple[str, ...]
    """Overrides that conversions make: passed on before the others, which win."""

    def kept(self, origin: int) -> list[str]:
        """What is passed on of the override at this place, besides `converted`."""
        mine = [record for record in self.records if record.given.origin == origin]
        return [
            text for record in mine if record.fate in ("same", "renamed") for text in record.becomes
        ]

    @property
    def problems(self) -> list[str]:
        """One sentence per problem, each once."""
        return list(
            dict.fromkeys(
                record.why for record in self.records if record.fate == "refused" and record.why
            )
        )

    @property
    def notices(self) -> list[str]:
        """One line per reason, with the keys that have no effect for it."""
        keys_of: dict[str, list[str]] = {}
        for record in self.records:
            if record.fate == "no effect" and record.why:
                keys_of.setdefault(record.why, []).append(record.given.key)
        return [
            f"no effect here: {', '.join(dict.fromkeys(keys))} ({why})"
            for why, keys in keys_of.items()
        ]


def apply(given: Sequence[Given], table: Sequence[KeyFate] = TABLE) -> Applied:
    """What becomes of every override; those whose key no row knows pass through."""
    single = [one for typed in given for one in _in_leaves(typed, table)]
    rows = [fate_of(one.key, table) for one in single]
    results = _conversions(single, rows)
    records = [_record(one, row, results) for one, row in zip(single, rows, strict=True)]
    converted = [text for result in results.values() for text in result.overrides]
    return Applied(records=tuple(records), converted=tuple(converted))


def _in_leaves(one: Given, table: Sequence[KeyFate]) -> Iterator[Given]:
    """A mapping with entries that rows know is as many overrides as it has entries."""
    entries = list(leaves(one.key, one.value)) if isinstance(one.value, dict) else []
    rows = [fate_of(key, table) for key, _ in entries]
    whole = fate_of(one.key, table)
    if all(row is None or row is whole for row in rows):
        yield one
        return
    plus = one.text[: len(one.text) - len(one.text.lstrip("+"))]
    for key, value in entries:
        yield Given(key=key, value=value, text=plus + override(key, value), origin=one.origin)


def _conversions(given: Sequence[Given], rows: Sequence[KeyFate | None]) -> dict[str, Converted]:
    """Name of each conversion that has something to do -> what it makes."""
    values = last_values(given)
    names = dict.fromkeys(
        row.by
        for row, one in zip(rows, given, strict=True)
        if row is not None and row.by and one.plain
    )
    results: dict[str, Converted] = {}
    for name in names:
        keys = [
            one.key
            for one, row in zip(given, rows, strict=True)
            if row is not None and row.by == name and one.plain
        ]
        results[name] = CONVERSIONS[name]({key: values[key] for key in keys}, values)
    return results


def _record(one: Given, row: KeyFate | None, results: dict[str, Converted]) -> Record:
    if row is None or (row.fate == "renamed" and isinstance(one.value, dict)):
        return Record(given=one, fate="same", becomes=(one.text,))
    if not one.plain and row.fate != "renamed":
        return Record(
            given=one,
            fate="refused",
            why=f"{one.text}: a sweep and a deletion need a key of rmrl; {row.why}",
        )
    if row.fate != "converted" and row.asks_for_nothing(one.value):
        return Record(given=one, fate="no effect")
    if row.fate == "renamed":
        ours = row.renamed(one.key)
        # A key of ours is there already: the + that verl needs for a new one goes.
        return Record(
            given=one,
            fate="renamed",
            becomes=(one.text.lstrip("+").replace(one.key, ours, 1),),
            why=row.why,
        )
    if row.fate == "converted":
        return _converted(one, row, results[row.by])
    why = row.why if row.fate == "no effect" else f"{one.key}={one.value}: {row.why}"
    return Record(given=one, fate=row.fate, why=why)


def _converted(one: Given, row: KeyFate, result: Converted) -> Record:
    if one.key in result.problems:
        return Record(
            given=one, fate="refused", why=f"{one.key}={one.value}: {result.problems[one.key]}"
        )
    if one.key in result.idle:
        return Record(given=one, fate="no effect", why=result.idle[one.key])
    typed = one.text.lstrip("+")
    # Passed on by the conversion, so that "same" has nothing more to pass on.
    fate: Fate = "converted" if typed not in result.overrides else "same"
    return Record(
        given=one, fate=fate, becomes=() if fate == "same" else result.overrides, why=row.why
    )
