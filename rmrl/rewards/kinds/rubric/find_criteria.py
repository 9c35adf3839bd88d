"""Criteria out of a configuration, a file or a row, in any of the FORMS."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rmrl.rewards.kinds.rubric.criteria import CriteriaError, Criterion, Entry, NoCriteriaError
from rmrl.rewards.kinds.rubric.forms import FORMS
from rmrl.rewards.kinds.rubric.forms.texts import TEXT

_SUFFIXES = (".toml", ".json", ".yaml", ".yml")


def read_criteria(document: Any, *, where: str, form: str = "") -> tuple[Criterion, ...]:
    """The criteria of a list, of an object around one, or of the JSON text of either. Entries of a
    list may be JSON texts of objects too.

    `form`: an entry of FORMS. "": found by the fields of the first
    criterion that is no plain text. Raises CriteriaError,
    whose sentence begins with `where` and names the entry; NoCriteriaError for an empty list or
    text.
    """
    if isinstance(document, str):
        if not document.strip():
            raise NoCriteriaError(f"{where} is an empty text: give a list of criteria, or its JSON")
        try:
            document = json.loads(document)
        except ValueError as error:
            raise CriteriaError(
                f"{where} is text that is no JSON ({error}): give a list of criteria, or its JSON"
            ) from error
    key = ""
    if isinstance(document, Mapping):
        keys = sorted({FORMS[name].key for name in FORMS} - {""})
        present = [each for each in keys if document.get(each) is not None]
        if len(present) != 1:
            raise CriteriaError(
                f"{where} is an object with {', '.join(map(str, document)) or 'no entry'}: give its"
                f" list of criteria as {' or '.join(keys)}"
            )
        key = present[0]
        where = f"{where}.{key}"
        document = document[key]
    if hasattr(document, "tolist"):
        document = document.tolist()
    if not isinstance(document, Sequence) or isinstance(document, str | bytes):
        raise CriteriaError(f"{where}={str(document)[:80]}: give a list of criteria")
    if not document:
        raise NoCriteriaError(f"{where} is an empty list: give at least one criterion")
    entries = _entries(document, where, key)
    # Plain texts stand among rmrl's own entries too; the others tell the form.
    first = min(entries, key=lambda entry: TEXT in entry.fields)
    matching = [form] if form else [name for name in FORMS if FORMS[name].matches(first)]
    if len(matching) != 1:
        fields = ", ".join(map(str, first.fields)) or "(none)"
        raise CriteriaError(
            f"{first.where} is of no known form (its fields: {fields}): give text, weight, ...; or"
            f" one of the forms {', '.join(FORMS)}"
        )
    criteria: list[Criterion] = []
    for entry in entries:
        name = matching[0]
        if name == "own" and TEXT in entry.fields:
            name = "texts"
        criteria.append(FORMS[name].criterion(entry))
    return tuple(criteria)


def configured_criteria(entry: Any, *, where: str, form: str = "") -> tuple[Criterion, ...]:
    """The criteria of a configuration's entry: a list, an object, or the path of a file; () for
    None. Raises CriteriaError."""
    if entry is None:
        return ()
    if not isinstance(entry, str):
        return read_criteria(entry, where=where, form=form)
    if Path(entry).suffix not in _SUFFIXES:
        raise CriteriaError(
            f"{where}={entry!r}: give a list of criteria, or a file that ends in"
            f" {', '.join(_SUFFIXES)}"
        )
    return read_criteria(_document(Path(entry).expanduser()), where=f"{where} ({entry})", form=form)


def _entries(document: Sequence[Any], where: str, key: str) -> list[Entry]:
    """A list's entries: objects, the JSON texts of objects, or plain texts. Raises
    CriteriaError."""
    entries: list[Entry] = []
    parsed: list[bool] = []
    for number, fields in enumerate(document):
        at = f"{where}[{number}]"
        if isinstance(fields, str):
            inside: Any = None
            if fields.lstrip().startswith("{"):
                with suppress(ValueError):
                    inside = json.loads(fields)
            parsed.append(isinstance(inside, Mapping))
            if parsed[-1]:
                fields = inside
        if isinstance(fields, str):
            fields = {TEXT: fields}
        if not isinstance(fields, Mapping):
            raise CriteriaError(f"{at}={fields!r}: give text, or the fields of a criterion")
        entries.append(Entry(fields, at, key))
    if any(parsed) and not all(parsed):
        raise CriteriaError(
            f"{where}: some entries are JSON texts of objects and others plain texts; give all of"
            " them as objects, e.g. {'text': 'It is right.'}"
        )
    return entries


@cache
def _document(path: Path) -> Any:
    """A file's content, read once in a process: it stays the same over a run."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CriteriaError(f"the criteria in {path} cannot be read: {error}") from error
